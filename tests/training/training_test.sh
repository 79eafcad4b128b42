#!/bin/bash
# Trains the network of examples/training by every schedule, on as many workers, and compares losses and weights with the plain loop's, bit for bit.
set -u
weft="$PWD/client/cli/weft"
reference="$PWD/tests/training/reference"
data="$PWD/examples/training"
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
widths=8,16,16,16,16,16,16,16,4
network="--mlp $widths --seed 3 --learning-rate 0.3 --activation tanh"
plain() {  # microbatches, stages, further arguments
  "$reference" --x "$data/x.npy" --t "$data/t.npy" --widths "$widths" --seed 3 --learning-rate 0.3 --activation tanh --microbatches "$1" --stages "$2" "${@:3}"
}

trap '"$weft" down --name training >/dev/null 2>&1' EXIT
"$weft" up --workers 4 --detach --name training || exit 1
export WEFT_CLUSTER=training

trains() {  # stages in all, microbatches, arguments of weft pipeline
  local stages="$1" m="$2" at="$tmp/$1-$2"
  shift 2
  [ -d "$at" ] || plain "$m" "$stages" --output "$at" || { echo "FAILED: reference"; failures=$((failures + 1)); }
  rm -rf "$tmp/out"
  "$weft" pipeline "$@" --microbatches "$m" $network --rows $((32 / m)) --format graph > "$tmp/g.textproto" || failures=$((failures + 1))
  "$weft" run "$tmp/g.textproto" --input-each x="$data/x.npy" --input-each t="$data/t.npy" --output "$tmp/out" > "$tmp/log" 2>&1 ||
    { echo "FAILED: run of $*: $(tail -5 "$tmp/log")"; failures=$((failures + 1)); }
  check "pipeline $*, $m microbatches: not the bits of the plain loop" "diff -rq '$tmp/out' '$at'"
}

trains 4 8 --schedule gpipe --stages 4
trains 4 8 --schedule 1f1b --stages 4
trains 4 8 --schedule eager-1f1b --stages 4
trains 8 8 --schedule interleaved-1f1b --stages 4
trains 8 8 --schedule looped-bfs --stages 4
trains 4 8 --schedule zb-h1 --stages 4
trains 4 8 --schedule zb-h2 --stages 4
trains 8 8 --schedule zbv --stages 4
trains 8 8 --schedule dualpipe-v --stages 4
trains 4 8 --schedule auto --stages 4 --cost F=10,I=12,W=7 --hop 1 --cap-activations 3
trains 8 4 --schedule auto --stages 4 --chunks 2
"$weft" pipeline --schedule zbv --stages 2 --microbatches 4 --format csv > "$tmp/grid.csv"
trains 4 4 --schedule "csv:$tmp/grid.csv" --stages 2
# Gradients of the last microbatch first: they are summed in one order all the same.
printf '%s\n' F0,F1,F2,F3,I3,W3,I2,I1,I0,W1,W0,W2 > "$tmp/grid.csv"
trains 1 4 --schedule "csv:$tmp/grid.csv" --stages 1
# Other numbers of stages and microbatches, one worker too; several steps under way at once change no bit.
trains 1 4 --schedule 1f1b --stages 1
trains 2 2 --schedule zb-h1 --stages 2
trains 3 16 --schedule 1f1b --stages 3
trains 4 8 --schedule zb-h2 --stages 4 --in-flight 3

# However the network is cut into stages, its weights are the same ones.
for step in 000000 000039; do
  for cut in 4-8 8-8; do
    for s in 0 1 2 3 4 5 6 7; do [ -f "$tmp/$cut/weights$s/$step.npy" ] && tail -c +129 "$tmp/$cut/weights$s/$step.npy"; done > "$tmp/all-$cut-$step"
  done
  check "weights by 4 and by 8 stages, step $step" "cmp '$tmp/all-4-8-$step' '$tmp/all-8-8-$step'"
done
check "there is something to compare" "[ \$(stat -c %s '$tmp/all-4-8-000039') -gt 7000 ]"

# It learns, and other arithmetic in double agrees; a network that was trained otherwise does not.
plain 8 4 --check "$tmp/4-8" --within 1e-5 || { echo "FAILED: far from the same in double"; failures=$((failures + 1)); }
check "the check can fail" "! plain 8 4 --check '$tmp/4-8' --within 1e-12 > /dev/null"
for f in "$tmp/4-8/loss"/*.npy; do tail -c 4 "$f" | od -An -f; done > "$tmp/losses"
check "40 losses, the last below 0.7 of the first" "awk 'NR == 1 { first = \$1 } END { exit !(NR == 40 && \$1 < 0.7 * first) }' '$tmp/losses'"

# What cannot be asked for is said with what can.
usage() {  # words, arguments
  local words="$1"
  shift
  "$weft" pipeline --stages 4 --microbatches 8 "$@" > /dev/null 2> "$tmp/err"
  local got=$?
  check "weft pipeline $*: $(cat "$tmp/err")" "[ $got = 2 ] && grep -q -- '$words' '$tmp/err'"
}
usage 'number of layers that works is 8' --schedule zbv --mlp 8,16,4 --format graph
usage 'no backwards' --schedule forward-only --mlp 8,16,16,16,4 --format graph
usage 'add --format graph' --schedule 1f1b --mlp 8,16,16,16,4
usage '--mlp' --schedule 1f1b --mlp 8,x --format graph
usage '--mlp' --schedule 1f1b --mlp 8 --format graph
usage '--learning-rate' --schedule 1f1b --mlp 8,8,8,8,8 --learning-rate nan --format graph

"$weft" down || failures=$((failures + 1))
[ "$failures" = 0 ] || exit 1
