#!/bin/bash
# Runs every example on a cluster of its own and checks what its page says of the results.
set -u
weft="$PWD/client/cli/weft"
examples="$PWD/examples"
tmp="${TEST_TMPDIR:-$(mktemp -d)}"
export XDG_RUNTIME_DIR="$tmp/run"
mkdir -p -m 0700 "$XDG_RUNTIME_DIR"
unset WEFT_ADDRESS WEFT_CLUSTER
failures=0
check() {
  if ! eval "$2"; then
    echo "FAILED: $1: $2"
    failures=$((failures + 1))
  fi
}

trap '"$weft" down --name examples >/dev/null 2>&1' EXIT
"$weft" up --workers 4 --detach --name examples || exit 1
export WEFT_CLUSTER=examples

# overlap: 512 k^2, the same with overlap on and off, one and several in flight; off must not be faster than on in flight.
for how in "off 1" "on 1" "on 4"; do
  set -- $how
  "$weft" run "$examples/overlap/overlap.textproto" --repeat 6 --overlap "$1" --in-flight "$2" --output "$tmp/overlap-$1-$2" \
    --trace "$tmp/overlap-$1-$2.svg" > "$tmp/out" || { echo "FAILED: overlap $how"; failures=$((failures + 1)); }
  check "overlap $how" "grep -A 3 '^execution 5' '$tmp/out' | grep -q 'first2 F32\[1\]: 12800.0'"
  check "overlap $how" "diff -r '$tmp/overlap-off-1' '$tmp/overlap-$1-$2'"
  check "overlap $how picture" "grep -q '>Measured<' '$tmp/overlap-$1-$2.svg' && grep -q '>Predicted<' '$tmp/overlap-$1-$2.svg'"
done

# mlp: four workers and one process give the same bits.
"$weft" run "$examples/mlp/mlp.textproto" --input-each x="$examples/mlp/batches.npy" --output "$tmp/four" > /dev/null || failures=$((failures + 1))
"$weft" run "$examples/mlp/mlp_one.textproto" --input-each x="$examples/mlp/batches.npy" --output "$tmp/one" > /dev/null || failures=$((failures + 1))
check mlp "[ \$(ls '$tmp/four/y' | wc -l) = 8 ]"
check mlp "diff -r '$tmp/four' '$tmp/one'"
check "mlp: batches differ" "! cmp -s '$tmp/four/y/000000.npy' '$tmp/four/y/000001.npy'"

# crossed: 2k + 3k on both sides.
"$weft" run "$examples/crossed/crossed.textproto" --repeat 5 > "$tmp/out" || failures=$((failures + 1))
check crossed "[ \$(grep -A 2 '^execution 4' '$tmp/out' | grep -c 'F32\[1\]: 20.0') = 2 ]"

# fanout: 96 k on every worker, (1 + 2 + 3) k in the total.
"$weft" run "$examples/fanout/fanout.textproto" --repeat 3 > "$tmp/out" || failures=$((failures + 1))
check fanout "[ \$(grep -A 4 '^execution 2' '$tmp/out' | grep -c 'sum[012] F32\[1\]: 192.0') = 3 ]"
check fanout "grep -A 4 '^execution 2' '$tmp/out' | grep -q 'total F32\[4, 4\]: 12.0, 12.0'"

check "every graph is gone" "'$weft' graphs | grep -q '^no graphs'"
"$weft" down || failures=$((failures + 1))
[ "$failures" = 0 ] || exit 1
