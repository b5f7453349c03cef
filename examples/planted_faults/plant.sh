#!/usr/bin/env bash
# plant.sh FOLDER [SECONDS]: plant faults on every GPU of this node, have `hpml accept` judge it meanwhile, and keep what it
# says as FOLDER/FAULT-RUN.json. No setting of the node is changed: the faults are other programs, and a bit that is flipped.
set -uo pipefail
here=$(dirname "$(realpath "$0")") folder=$1 end=${2:-280}
python=${PYTHON:-python3}
mkdir -p "$folder"
gpus=$(nvidia-smi --query-gpu=uuid --format=csv,noheader) || exit 2

accept() { # FAULT RUN SECONDS ARGUMENTS...
    local name=$1-$2 need=$3; shift 3
    [ $((end - SECONDS)) -ge "$need" ] || { echo "$name: no time left"; return; }
    timeout -k 5 $((end - SECONDS)) "$python" -m hpml_plugins accept --json "$@" >"$folder/$name.json"
    echo "$name: status $?, $SECONDS s $(grep -m 1 '"why"' "$folder/$name.json")"
}
beside() { # FAULT KIND SHARE RUNS: a neighbour on each GPU meanwhile
    local pids=() gpu run
    for gpu in $gpus; do
        CUDA_VISIBLE_DEVICES=$gpu "$python" "$here/neighbour.py" "$2" "$3" & pids+=($!)
    done
    sleep 8
    for run in $(seq "$4"); do accept "$1" "$run" 12 --only "$2"; done
    kill -9 "${pids[@]}"
    wait "${pids[@]}" 2>/dev/null
}

beside neighbour memory 0.05 5
beside kernel clocks 0.10 5
beside link link 1.0 3
HPML_FLIP_BIT=$(head -n 1 <<<"$gpus") accept bit 1 12 --only bits
for run in 1 2; do accept plain "$run" 50; done
