#!/bin/bash
# `weft pipeline` as a person uses it: formats, exit codes, and its graph run on workers.
set -u
weft="$PWD/client/cli/weft"
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
ends_with() {  # code, words in the message, arguments
  local code="$1" words="$2"
  shift 2
  "$weft" pipeline "$@" > "$tmp/out" 2> "$tmp/err"
  local got=$?
  check "pipeline $*" "[ $got = $code ]"
  check "pipeline $*: $(cat "$tmp/err")" "grep -q -- '$words' '$tmp/err'"
}
size="--stages 4 --microbatches 8"

# Text: the golden order. JSON: every key. Both bubbles of the same schedule.
"$weft" pipeline --schedule zb-h1 --stages 2 --microbatches 4 > "$tmp/text" || failures=$((failures + 1))
check text "grep -q '^w0 F0@0 F1@1 I0@3 W0@4 F2@5 I1@6 W1@7 F3@8 I2@9 W2@10 I3@11 W3@12 end 13' '$tmp/text'"
"$weft" pipeline --schedule zb-h2 $size --memory f=10,w=-4 --format json > "$tmp/json" || failures=$((failures + 1))
for key in makespan span bubble_global bubble_span peak_activations peak_bytes orders scheduler_s; do
  check "json $key" "grep -q '\"$key\":' '$tmp/json'"
done
check json "grep -q '\"makespan\": 27.0' '$tmp/json' && grep -q '\"span\": 24.0' '$tmp/json' && grep -q '\"bubble_span\": 0.0' '$tmp/json'"
"$weft" pipeline --schedule zb-h2 $size --memory f=10,w=-4 --json | grep -v scheduler_s > "$tmp/json2"
check "--json is --format json" "grep -v scheduler_s '$tmp/json' | cmp -s - '$tmp/json2'"
"$weft" pipeline --schedule dualpipe-v $size --format svg > "$tmp/a.svg" || failures=$((failures + 1))
check svg "grep -q '</svg>' '$tmp/a.svg'"

# A grid comes back as the schedule that wrote it.
"$weft" pipeline --schedule dualpipe-v $size --format csv > "$tmp/grid.csv" || failures=$((failures + 1))
"$weft" pipeline --schedule "csv:$tmp/grid.csv" $size --cost F=10,I=12,W=7,FB=0.8 --hop 4 --json > "$tmp/json" || failures=$((failures + 1))
check grid "grep -q '\"makespan\": 326.5' '$tmp/json'"

# What cannot be done says what can.
ends_with 2 'the smallest that works is 8' --schedule dualpipe-v --stages 4 --microbatches 7
ends_with 2 'the next above 10 is 12' --schedule interleaved-1f1b --stages 4 --microbatches 10
ends_with 2 'the smallest that works for it is 4' --schedule 1f1b $size --cap-activations 3
ends_with 2 'the smallest that works is 1' --schedule auto $size --cap-activations 0.5
ends_with 2 'the smallest that works is 100' --schedule auto $size --memory f=100,w=-40 --cap-bytes 99
ends_with 2 'add --memory' --schedule auto $size --cap-bytes 99
ends_with 2 'negative' --schedule auto $size --cost F=-1,I=1,W=1
ends_with 2 'not a time' --schedule auto $size --cost F=nan,I=1,W=1
ends_with 2 'W is missing' --schedule auto $size --cost F=1,I=1
ends_with 2 'is no schedule' --schedule zbh1 $size
ends_with 2 'cannot read' --schedule csv:/nowhere $size
printf 'F0,W0,I0\n' > "$tmp/bad.csv"
ends_with 3 'w0: W0 stands before I' --schedule "csv:$tmp/bad.csv" --stages 1 --microbatches 1
printf 'F0,B0,F1,B1\nF1,F0,B0,B1\n' > "$tmp/bad.csv"
ends_with 3 'w0 is at B0 and waits for' --schedule "csv:$tmp/bad.csv" --stages 2 --microbatches 2

# The graph: predicted as the schedule says, and run by workers.
"$weft" pipeline --schedule auto --stages 2 --microbatches 4 --cost F=10ms,I=12ms,W=7ms --hop 1ms --format graph > "$tmp/g.textproto" || failures=$((failures + 1))
"$weft" pipeline --schedule auto --stages 2 --microbatches 4 --cost F=10ms,I=12ms,W=7ms --hop 1ms > "$tmp/text" || failures=$((failures + 1))
"$weft" plan "$tmp/g.textproto" --simulate 1 > "$tmp/predicted" || failures=$((failures + 1))
makespan=$(sed -n 's/^makespan \([0-9.]* [a-z]*\),.*/\1/p' "$tmp/text")
check "prediction of $makespan" "grep -q 'take $makespan' '$tmp/predicted'"
trap '"$weft" down --name pipeline >/dev/null 2>&1' EXIT
"$weft" up --workers 2 --detach --name pipeline || exit 1
WEFT_CLUSTER=pipeline "$weft" run "$tmp/g.textproto" --repeat 3 > "$tmp/out" || failures=$((failures + 1))
check run "[ \$(grep -c 'end[01] F32\[1\]: 2.0' '$tmp/out') = 2 ]"
"$weft" down --name pipeline || failures=$((failures + 1))
[ "$failures" = 0 ] || exit 1
