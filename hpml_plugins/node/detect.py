"""Facts of this machine without heavy imports (/proc, `platform`, NVML for the GPUs), a name
derived from them, and the name for its results in a project."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
from collections.abc import MutableMapping, Sequence
from pathlib import Path

import msgspec

from hpml_plugins.isolation import Send, run_isolated
from hpml_plugins.model.node import FoundGpus, Gpu, Node
from hpml_plugins.store import machine_folders, read_object_or_empty

#: The environment variable that sets the order in which CUDA numbers its devices.
ORDER_VARIABLE = "CUDA_DEVICE_ORDER"
#: NVML's order, which Records use.
NVML_ORDER = "PCI_BUS_ID"
CHOICE_VARIABLE = "CUDA_VISIBLE_DEVICES"
#: s that NVML has to answer; otherwise the machine counts as having no GPU.
PATIENCE = 60.0
#: Device files of NVIDIA's driver: on Linux, and on WSL.
_DEVICES = ("/dev/nvidiactl", "/dev/dxg")
#: Matches the output of `machine_name` for any machine.
_OURS = re.compile(r"[a-z0-9-]+-x\d+")

#: Words of a product name that do not distinguish GPU types.
_NOISE = (
    "nvidia",
    "tesla",
    "geforce",
    "graphics",
    "corporation",
    "processor",
    "cpu",
    "(r)",
    "(tm)",
)


def detect_node() -> Node:
    """Describe this machine as a Node. Never raises for a missing or broken GPU: `gpu_problem` then
    gives NVML's reason."""
    found = read_gpus()
    cpu_info = _read("/proc/cpuinfo")
    choice = os.environ.get(CHOICE_VARIABLE)
    gpus = visible(found.gpus, choice, found.slices)
    model = re.search(
        r"^(?:cpu family\s*: (\d+)\nmodel\s*: (\d+)\n)?model name\s*:(.+)$",
        cpu_info,
        re.MULTILINE,
    )
    cpu = model[3].strip() if model else platform.processor() or platform.machine()
    # hypervisors use one name for many generations
    if model and model[1] and not re.search(r"\d", cpu):
        cpu = f"{cpu}, family {model[1]} model {model[2]}"
    return Node(
        os=f"{platform.system()} {platform.release()}",
        arch=platform.machine(),
        cpu=cpu,
        # in a container or a Slurm job fewer than the machine has
        num_cpu=len(os.sched_getaffinity(0)),
        ram=float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        python=platform.python_version(),
        gpus=gpus,
        driver=found.driver,
        cuda=found.cuda,
        gpu_problem=found.problem or ("" if gpus else _why_none(found, choice)),
        host=_hash_of("/etc/machine-id"),
        boot=_hash_of("/proc/sys/kernel/random/boot_id"),
        virtual=re.search(r"^flags\s*:.*\bhypervisor\b", cpu_info, re.MULTILINE)
        is not None,
        host_cpus=os.cpu_count() or 0,
        host_gpus=sum(len(_devices(gpu, found.slices)) for gpu in found.gpus),
        cpu_quota=_cpu_quota(Path("/sys/fs/cgroup/cpu.max")),
        cpu_numa=_cpu_numa(Path("/sys/devices/system/node")),
    )


def read_gpus() -> FoundGpus:
    """Ask NVML for the GPUs. Without a driver the result has no GPU and no problem; a failing
    driver is reported as a problem.

    A forked process asks, because this one may fork processes that use CUDA and must not open NVML
    before. Without a device file of the driver there is no CUDA either, and no process is forked.
    """
    if not any(Path(device).exists() for device in _DEVICES) and not _has_library():
        return FoundGpus()
    answers: list[bytes] = []
    outcome = run_isolated(_send_gpus, PATIENCE, answers.append)
    if not answers:
        return FoundGpus(problem=f"NVML: {outcome.fault}")
    return msgspec.json.decode(answers[0], type=FoundGpus)


def _send_gpus(send: Send) -> None:
    """Runs in the process that asks NVML."""
    found = FoundGpus()
    if _has_library():
        from hpml_plugins.node.nvml import find_cards

        found = find_cards()
    send(msgspec.json.encode(found))


def _has_library() -> bool:
    """Whether the driver's NVML library exists: pynvml would take 0.1 s to find out."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def visible(
    gpus: tuple[Gpu, ...], choice: str | None, slices: Sequence[Gpu] = ()
) -> tuple[Gpu, ...]:
    """The CUDA devices selected by CUDA_VISIBLE_DEVICES: indices or UUIDs, up to the first that
    does not exist.

    gpus: the cards in NVML's order.  slices: the MIG devices of all of them. A card with MIG is not
    itself a CUDA device. CUDA gives a process only one MIG device, the first selected one, and then
    no whole card in addition. Sources: CUDA C++ Programming Guide, environment variables; NVIDIA
    Multi-Instance GPU User Guide, CUDA Device Enumeration.
    """
    devices = usable(gpus, choice, slices)
    of_mig = tuple(device for device in devices if device.board)
    return of_mig[:1] or devices


def usable(
    gpus: Sequence[Gpu], choice: str | None, slices: Sequence[Gpu] = ()
) -> tuple[Gpu, ...]:
    """All devices selected by CUDA_VISIBLE_DEVICES, for processes that get one each.  Arguments:
    see `visible`."""
    chosen = gpus if choice is None else _chosen(gpus, choice, slices)
    return tuple(device for each in chosen for device in _devices(each, slices))


def _chosen(gpus: Sequence[Gpu], choice: str, slices: Sequence[Gpu]) -> list[Gpu]:
    """The cards and MIG devices named in CUDA_VISIBLE_DEVICES. An index always refers to a card,
    even with MIG."""
    chosen: list[Gpu] = []
    for name in filter(None, (part.strip() for part in choice.split(","))):
        matches = [
            gpu for i, gpu in enumerate(gpus) if name == str(i) or gpu.uuid.startswith(name)
        ]
        matches += [device for device in slices if device.uuid.startswith(name)]
        if len(matches) != 1:
            break
        chosen.append(matches[0])
    return chosen


def _devices(gpu: Gpu, slices: Sequence[Gpu]) -> list[Gpu]:
    """The CUDA devices of a card or of a MIG device."""
    if gpu.board or not gpu.mig:
        return [gpu]
    return [device for device in slices if device.board == gpu.uuid]


def _why_none(found: FoundGpus, choice: str | None) -> str:
    """Why CUDA has no device although there are cards; empty without cards, or if none was
    requested."""
    chosen = found.gpus if choice is None else _chosen(found.gpus, choice, found.slices)
    asked_for_none = choice is not None and choice.strip() in ("", "-1")
    if not found.gpus or asked_for_none:
        return ""
    if not chosen:
        return f"{CHOICE_VARIABLE}={choice} names no GPU that NVML lists; see nvidia-smi -L"
    return (
        f"MIG is on for {chosen[0].name}, and no MIG device exists that this process may use; "
        "nvidia-smi mig -cgi PROFILE -C makes one, nvidia-smi -mig 0 turns MIG off"
    )


def pin_devices(node: Node, environ: MutableMapping[str, str]) -> str:
    """Make CUDA open the devices that the node names, in their order; call it before CUDA is
    opened.

    environ: the variables of the process that will open it. CUDA's default order puts the fastest
    card first; NVML's is that of the PCI bus. The first of several MIG devices is selected
    explicitly. Returns a warning if the caller had requested another order; empty otherwise.
    Source: CUDA C++ Programming Guide, environment variables.
    """
    order = environ.get(ORDER_VARIABLE, NVML_ORDER)
    environ[ORDER_VARIABLE] = NVML_ORDER
    if any(gpu.board for gpu in node.gpus):
        environ[CHOICE_VARIABLE] = ",".join(gpu.uuid for gpu in node.gpus)
    if order == NVML_ORDER or not node.gpus:
        return ""
    return (
        f"{ORDER_VARIABLE}={order} was replaced by {NVML_ORDER}: the Record names the GPUs in"
        " NVML's order"
    )


def machine_name(node: Node) -> str:
    """`h200-x2`, `cpu-amd-epyc-7763-x2`: independent of the host name, which changes for cloud
    nodes, so that results form one history.

    The GPU type is the name of the cards (`Gpu.name`). It distinguishes a MIG device from its card
    and from other sizes (`a100-sxm4-40gb-mig-1g-5gb-x1`), and cards of one product name with
    different memory (`rtx-3060-12gb-x1`).
    """
    if node.gpus:
        return f"{_slug(node.gpu)}-x{node.num_gpu}"
    return f"cpu-{_slug(node.cpu)}-x{node.num_cpu}"


def filed_under(node: Node, results: Path) -> str:
    """The name for this machine's results: that of `asv machine` if asv measured here before and
    our own name has no results, else `machine_name`.

    A node with GPUs does not use the older name: it does not say how many GPUs were visible, so one
    history would mix them.
    """
    own = machine_name(node)
    earlier = earlier_names(results)
    if node.gpus or len(earlier) != 1 or (results / own).is_dir():
        return own
    return earlier[0]


def earlier_names(results: Path) -> list[str]:
    """The names that asv's user gave this computer: those in ~/.asv-machine.json that have results
    here and were not created by us."""
    known = read_object_or_empty(Path("~/.asv-machine.json").expanduser())
    found = (folder.name for folder in machine_folders(results))
    return [name for name in found if name in known and not _OURS.fullmatch(name)]


def _slug(text: str) -> str:
    words = text.lower()
    for noise in _NOISE:
        words = words.replace(noise, " ")
    words = re.sub(r"@.*|\b\d+-core\b", " ", words)
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-") or "unknown"


def _read(path: str) -> str:
    """The contents of a system file; empty if it does not exist."""
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _hash_of(path: str) -> str:
    """Ten hexadecimal digits for the contents of a file: enough to distinguish machines without
    identifying them."""
    content = _read(path)
    return hashlib.sha256(b"hpml" + content.encode()).hexdigest()[:10] if content else ""


def _cpu_quota(limit: Path) -> float:
    """The CPU time that this container's control group grants, in CPUs; 0 without a limit.

    Source: Linux kernel documentation, Control Group v2, cpu.max: the quota and the period in µs,
    or "max".
    """
    try:
        quota, period = limit.read_text().split()
        return float(quota) / float(period)
    except (OSError, ValueError):
        return 0.0


def _cpu_numa(nodes: Path) -> tuple[int, ...]:
    """The NUMA nodes of the CPUs that this process may use; empty if the system does not say."""
    usable = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    return tuple(
        sorted(
            {
                int(path.parent.name[4:])
                for path in nodes.glob("node*/cpu*")
                if path.name in usable
            }
        )
    )
