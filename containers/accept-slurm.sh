#!/bin/sh
# Slurm: is this node as good as its kind? (docs/accept.md) As a prolog, a health check, or a job on each node:
#   Prolog=/opt/hpml/containers/accept-slurm.sh        with PrologFlags=Alloc and PrologTimeout of 90 s a GPU
#   HealthCheckProgram=…, HealthCheckNodeState=IDLE    Slurm ends it after 60 s: HPML_ACCEPT_ARGUMENTS="--only memory"
#   srun --exclusive --nodelist=NODE accept-slurm.sh
# It writes NODE.json and NODE.html and changes nothing, unless HPML_ACCEPT_DRAIN=yes: then a node that fails is drained,
# and a prolog returns the job to the queue. What cannot be told drains no node. Settings, from the environment or a file:
#   HPML_ACCEPT            the command, default: hpml
#   HPML_ACCEPT_ARGUMENTS  such as --bands /opt/hpml/site.json
#   HPML_ACCEPT_REPORTS    the folder of reports, default: /var/log/hpml-accept
#   HPML_ACCEPT_DRAIN      yes or no
set -u
conf=${HPML_ACCEPT_CONF:-/etc/hpml-accept.conf}
# shellcheck disable=SC1090
[ ! -r "$conf" ] || . "$conf"
node=${SLURMD_NODENAME:-$(hostname -s)} reports=${HPML_ACCEPT_REPORTS:-/var/log/hpml-accept}
mkdir -p "$reports" || exit 0
# shellcheck disable=SC2086  # the command and its arguments are meant to be split
${HPML_ACCEPT:-hpml} accept --json --html "$reports/$node.html" ${HPML_ACCEPT_ARGUMENTS:-} \
    >"$reports/$node.json" 2>"$reports/$node.err"
status=$?
case $status in
    0) said="passed" ;;
    1) said="failed" ;;
    3) said="cannot be told" ;;
    *) said="was not judged: $(tail -n 1 "$reports/$node.err")" ;;
esac
echo "hpml accept: $node $said; $reports/$node.html"
[ "$status" = 1 ] && [ "${HPML_ACCEPT_DRAIN:-no}" = yes ] || exit 0
scontrol update NodeName="$node" State=DRAIN Reason="hpml accept: failed, see $reports/$node.html"
[ "${SLURM_SCRIPT_CONTEXT:-}" != prolog_slurmd ] || exit 1
exit 0
