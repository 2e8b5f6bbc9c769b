#!/bin/sh
# A kind cluster with three workers and Leasehold, installed by Helm from this checkout, and a Service with an
# address of Docker's network `kind`.
#
#   CLUSTER=NAME kind/up.sh   the name is `leasehold` by default
#
# Needs Docker, kind, Helm and kubectl. Can be run again: it goes on where it stopped.
set -eu
cd "$(dirname "$0")/.."
. kind/common.sh
need docker kind helm kubectl

if ! kind get clusters 2>/dev/null | grep -qx "$cluster"; then
    kind create cluster --name "$cluster" --config kind/cluster.yaml
fi

# shellcheck source=../deploy/image/identity
. deploy/image/identity
for image in speaker operator; do
    say "building leasehold/$image:$version"
    docker build --quiet --file deploy/Dockerfile --target "$image" --tag "leasehold/$image:$version" \
        --build-arg LEASEHOLD_COMMIT --build-arg LEASEHOLD_DATE .
done
kind load docker-image --name "$cluster" "leasehold/speaker:$version" "leasehold/operator:$version"

helm upgrade --install leasehold deploy/helm/leasehold --kube-context "$context" --wait --timeout 3m

# The last addresses of the network's IPv4 subnet, which Docker gives out from its beginning. It is a /16, or
# what Docker was configured to; a narrower one than /24 leaves no room that can be told from here.
subnet=$(docker network inspect kind --format '{{range .IPAM.Config}}{{println .Subnet}}{{end}}' |
    grep -v : | head -n 1)
[ -n "$subnet" ] || fail "the Docker network \`kind\` has no IPv4 subnet: docker network inspect kind"
bits=${subnet#*/}
network=${subnet%/*}
if [ "$bits" -le 16 ]; then
    range=${network%.*.*}.255
elif [ "$bits" -le 24 ]; then
    range=${network%.*}
else
    fail "the subnet $subnet of the Docker network \`kind\` is too narrow: write a pool by hand"
fi
say "the pool: $range.200-$range.250"
kubectl apply -f - <<YAML
apiVersion: leasehold.dev/v1alpha1
kind: IPAddressPool
metadata:
  name: default
spec:
  addresses:
    - $range.200-$range.250
YAML
kubectl apply -f examples/web.yaml
kubectl rollout status deployment/web --timeout=3m
kubectl wait service/web --for='jsonpath={.status.loadBalancer.ingress[0].ip}' --timeout=1m
kubectl get service web
say "now: kind/demo.sh, or kubectl --context $context describe lease -n leasehold-system default.web"
