#!/bin/sh
# Deletes the cluster that kind/up.sh made: CLUSTER=NAME kind/down.sh
set -eu
cd "$(dirname "$0")/.."
. kind/common.sh
need docker kind
kind delete cluster --name "$cluster"
