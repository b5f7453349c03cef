"""A real Slurm on this machine: munged, slurmctld and one slurmd per node, each on its own port,
in one folder."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from support import wait_for

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol")
_CONF = """
ClusterName=toy
SlurmctldHost={host}
SlurmctldPort={ctld}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=20
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1,requeue_delay=0
ReturnToService=2
SlurmdTimeout=10
KillWait=2
CompleteWait=0
MinJobAge=300
OverTimeLimit=0
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MpiDefault=none
SwitchType=switch/none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
{nodes}
PartitionName=all Nodes={names} Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=a Nodes=n1 MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=b Nodes=n2 MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=n1 MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


def missing() -> list[str]:
    """The programs that this machine lacks, and root's rights, which slurmd and munged need."""
    lacking = [name for name in PROGRAMS if not find(name)]
    return lacking if os.geteuid() == 0 else [*lacking, "root"]


def find(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for item in sockets:
        item.bind(("127.0.0.1", 0))
    ports = [int(item.getsockname()[1]) for item in sockets]
    for item in sockets:
        item.close()
    return ports


@dataclass
class Slurm:
    """A running cluster. env: what makes its commands find it."""

    folder: Path
    nodes: tuple[str, ...] = ("n1", "n2")
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def env(self) -> Mapping[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def start(self) -> None:
        host = socket.gethostname().split(".")[0]
        ctld, *ports = free_ports(1 + len(self.nodes))
        for name in ("state", "munge", *(f"spool-{node}" for node in self.nodes)):
            (self.folder / name).mkdir(mode=0o755)
        nodes = "\n".join(
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1"
            f" RealMemory=500 Feature=f{node}"
            for node, port in zip(self.nodes, ports, strict=True)
        )
        text = _CONF.format(
            folder=self.folder,
            host=f"{host}(127.0.0.1)",
            ctld=ctld,
            nodes=nodes,
            names=",".join(self.nodes),
        )
        (self.folder / "slurm.conf").write_text(text)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self._spawn(
            "munged",
            "--foreground",
            "--force",
            f"--key-file={key}",
            f"--socket={self.folder}/munge.socket",
            f"--pid-file={self.folder}/munge/munged.pid",
            f"--seed-file={self.folder}/munge/seed",
            f"--log-file={self.folder}/munge/munged.log",
        )
        wait_for(lambda: (self.folder / "munge.socket").exists(), "munged's socket")
        self._spawn("slurmctld", "-D")
        for node in self.nodes:
            self.start_node(node)
        wait_for(
            lambda: self.states() == ["idle"] * len(self.nodes),
            "nodes to be idle",
            self.log,
        )

    def start_node(self, node: str) -> None:
        self._spawn("slurmd", "-D", "-N", node, name=node)

    def kill_node(self, node: str) -> None:
        """Kill a node's slurmd and all that runs below it, as a power cut would."""
        below = descendants(self.processes[node].pid)
        self.processes[node].kill()
        self.processes[node].wait()
        stepds = [
            pid
            for pid, words in command_lines().items()
            if words.startswith("slurmstepd") and self.runs_on(pid, node)
        ]
        children = [child for stepd in stepds for child in descendants(stepd)]
        # a slurmstepd that outlives its job reports its end
        for pid in dict.fromkeys([*stepds, *below, *children]):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def runs_on(self, pid: int, node: str) -> bool:
        return any(
            b"SLURMD_NODENAME=" + node.encode() in environment(child).split(b"\0")
            for child in (pid, *descendants(pid))
        )

    def states(self) -> list[str]:
        return self.ask("sinfo", "-h", "-N", "-p", "all", "-o", "%t").split()

    def ask(self, *command: str) -> str:
        """A command's output, "" while it fails."""
        done = subprocess.run(
            command,
            env={**os.environ, **self.env},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout if done.returncode == 0 else ""

    def stop(self) -> None:
        for node in self.nodes:
            if node in self.processes and self.processes[node].poll() is None:
                self.kill_node(node)
        for process in self.processes.values():
            process.kill()
            process.wait()

    def log(self) -> str:
        logs = [
            self.folder / "slurmctld.log",
            *self.folder.glob("slurmd-*.log"),
            *self.folder.glob("*.err"),
        ]
        return "\n".join(
            f"{path.name}: " + path.read_text()[-1500:] for path in logs if path.exists()
        )

    def _spawn(self, program: str, *args: str, name: str = "") -> None:
        with (self.folder / f"{name or program}.err").open("ab") as log:
            self.processes[name or program] = subprocess.Popen(
                [str(find(program)), *args],
                env={**os.environ, **self.env},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


def command_lines() -> dict[int, str]:
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                found[int(entry.name)] = (
                    (entry / "cmdline")
                    .read_bytes()
                    .replace(b"\0", b" ")
                    .decode(errors="replace")
                )
    return found


def environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(entry.name))
    found, front = [], [pid]
    while front:
        front = [child for parent in front for child in parents.get(parent, [])]
        found += front
    return found
