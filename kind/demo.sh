#!/bin/sh
# The story of `make demo` on the cluster that kind/up.sh made: the owner's node dies, hangs, is upgraded and
# drained, and a client beside the nodes on Docker's network tells what it felt.
#
#   CLUSTER=NAME kind/demo.sh
set -eu
cd "$(dirname "$0")/.."
. kind/common.sh
need docker kind kubectl
kind get clusters 2>/dev/null | grep -qx "$cluster" || fail "there is no cluster $cluster: kind/up.sh"

scratch=$(mktemp -d)
client=
restore=
# Whatever happens, no node stays dead, and no client stays.
leave() {
    [ -z "$client" ] || docker rm --force "$client" >/dev/null 2>&1 || true
    [ -z "$restore" ] || sh -c "$restore" >/dev/null 2>&1 || true
    rm -rf "$scratch"
}
trap leave EXIT
trap 'exit 1' HUP INT TERM

address=$(kubectl get service web -o 'jsonpath={.status.loadBalancer.ingress[0].ip}')
[ -n "$address" ] || fail "the Service web has no address: kubectl --context $context describe service web"
# A node's image has bash and curl, and is there already. A node itself is no client: what it sends to the
# address goes to the pods without ever being on the network.
image=$(docker inspect "$cluster-control-plane" --format '{{.Config.Image}}')

owner() { kubectl get lease -n leasehold-system default.web -o 'jsonpath={.spec.holderIdentity}'; }

# Starts the client for so many seconds.
watch() {
    client=$(docker run --detach --network kind --volume "$PWD/kind/client.sh:/client.sh:ro" \
        --entrypoint /bin/bash "$image" /client.sh "$address" "$1")
    sleep 1
}

# Waits for the client, and says what it felt.
felt() {
    docker wait "$client" >/dev/null
    say "the client: $(docker logs "$client" 2>&1 | tail -n 1)"
    say "the owner is now $(owner)"
    docker rm "$client" >/dev/null
    client=
}

# A container stands still for so many seconds while the client asks.
paused() {
    watch 20
    restore="docker unpause $1"
    docker pause "$1" >/dev/null
    sleep "$2"
    docker unpause "$1" >/dev/null
    restore=
    felt
}

# Until all speakers are ready again.
whole() {
    kubectl wait --for=condition=Ready node --all --timeout=3m >/dev/null
    kubectl rollout status daemonset/leasehold-speaker -n leasehold-system --timeout=3m >/dev/null
}

chapter "1. The Service, its address, and the Lease that names its owner"
kubectl get service web
kubectl describe lease -n leasehold-system default.web

old=$(owner)
chapter "2. $old, the owner, dies (docker kill)"
watch 10
restore="docker start $old"
docker kill "$old" >/dev/null
felt

chapter "3. $old is back"
watch 20
docker start "$old" >/dev/null
restore=
felt
whole

old=$(owner)
chapter "4. $old, the owner, hangs for 10 s (docker pause): its kernel still answers, its speaker does not"
paused "$old" 10
whole

chapter "5. All speakers are replaced, one node at a time (kubectl rollout restart)"
watch 45
kubectl rollout restart daemonset/leasehold-speaker -n leasehold-system >/dev/null
felt
whole

old=$(owner)
chapter "6. $old, the owner, is drained: the address moves before it leaves"
watch 15
restore="kubectl --context $context uncordon $old"
kubectl drain "$old" --ignore-daemonsets --delete-emptydir-data --timeout=1m >/dev/null
felt
kubectl uncordon "$old" >/dev/null
restore=

chapter "7. The API server is away for 15 s (docker pause of the control plane)"
paused "$cluster-control-plane" 15
