# shellcheck shell=sh
# Shared by up.sh, demo.sh and down.sh, which source it.

cluster=${CLUSTER:-leasehold}
context=kind-$cluster
# shellcheck disable=SC2034 # used by those that source it
version=0.1.0

say() { printf '%s\n' "$*"; }
chapter() { printf '\n== %s\n\n' "$*"; }
fail() {
    printf '%s\n' "$*" >&2
    exit 1
}

# Names everything that is missing at once.
need() {
    missing=
    for program in "$@"; do
        command -v "$program" >/dev/null || missing="$missing $program"
    done
    [ -z "$missing" ] || fail "missing:$missing (https://docs.docker.com/engine/install,
https://kind.sigs.k8s.io, https://helm.sh/docs/intro/install, https://kubernetes.io/docs/tasks/tools)"
}

kubectl() { command kubectl --context "$context" "$@"; }
