#!/bin/bash
# What a client feels: asks an address by HTTP for some seconds, a new connection each time, and tells how
# many requests were lost and for how long nobody answered.
#
#   client.sh ADDRESS SECONDS
#
# A request that is not answered within 100 ms is lost. The longest outage is the time from the last answer
# before a lost request to the first answer after it: a request more than the address was away.
set -u

address=$1
seconds=$2
case $address in *:*) address="[$address]" ;; esac

# Microseconds: what the clock says without its separator.
now() { printf '%s' "${EPOCHREALTIME/[.,]/}"; }

# Prints the three figures at once, also when it is stopped before its time.
sent=0 lost=0 longest=0
tell() {
    echo "$sent requests, $lost lost, longest outage $((longest / 1000)) ms"
    exit 0
}
trap tell TERM INT

start=$(now) answered=$(now) missing=no
end=$((start + seconds * 1000000))
while [ "$(now)" -lt "$end" ]; do
    sent=$((sent + 1))
    if curl --silent --output /dev/null --max-time 0.1 "http://$address/"; then
        if [ $missing = yes ]; then
            outage=$(($(now) - answered))
            [ $outage -gt $longest ] && longest=$outage
        fi
        answered=$(now) missing=no
    else
        lost=$((lost + 1)) missing=yes
    fi
    sleep 0.01
done
if [ $missing = yes ]; then
    outage=$(($(now) - answered))
    [ $outage -gt $longest ] && longest=$outage
fi
tell
