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
ends_with 2 'is a directory' --schedule "csv:$tmp" $size
ends_with 2 '--rows requires --mlp' $size --schedule 1f1b --rows 4
printf 'F0,W0,I0\n' > "$tmp/bad.csv"
cp "$tmp/bad.csv" "$tmp/bad2.csv"
ends_with 3 'w0: W0 stands before I' --schedule "csv:$tmp/bad.csv" --stages 1 --microbatches 1
printf 'F0,B0,F1,B1\nF1,F0,B0,B1\n' > "$tmp/bad.csv"
ends_with 3 'w0 is at B0 and waits for' --schedule "csv:$tmp/bad.csv" --stages 2 --microbatches 2

ends_with 2 'the smallest that works for it is 400' --schedule 1f1b $size --memory f=100,w=-40 --cap-bytes 399
"$weft" pipeline --schedule 1f1b $size --memory f=100,w=-40 --cap-bytes 400 --json > "$tmp/json" || failures=$((failures + 1))
check "bytes of every worker" "tr -d ' \n' < '$tmp/json' | grep -q '\"peak_bytes\":\[400.0,300.0,200.0,100.0\]'"
"$weft" pipeline --schedule auto $size --memory f=100,w=-40 --cap-bytes 250 --json > "$tmp/json" || failures=$((failures + 1))
check "auto within bytes" "tr -d ' \n' < '$tmp/json' | sed 's/.*\"peak_bytes\":\[//; s/\].*//' | tr ',' '\n' | awk '\$1 > 250 { bad = 1 } END { exit bad || NR != 4 }'"
ends_with 2 'the smallest that works' --schedule zbv $size --cap-activations 3.5
ends_with 2 'negative' --schedule 1f1b $size --hop -1
ends_with 2 'not a time' --schedule 1f1b $size --hop nan
ends_with 2 'not a time' --schedule 1f1b $size --cost F=inf,I=1,W=1
ends_with 2 'FB' --schedule auto $size --cost F=1,I=1,W=1,FB=0
ends_with 2 'FB' --schedule auto $size --cost F=1,I=1,W=1,FB=nan
ends_with 2 'take no time' --schedule auto $size --cost F=0,I=0,W=0
ends_with 2 'has 3 values' --schedule 1f1b $size --cost F=1:2:3,I=1,W=1
ends_with 2 'w is missing' --schedule 1f1b $size --memory f=100
ends_with 2 '0 or less' --schedule 1f1b $size --memory f=100,w=40
ends_with 2 'not a finite number' --schedule 1f1b $size --cap-activations nan
ends_with 2 'together' --schedule 1f1b $size --memory f=100,w=-40 --cap-bytes 400 --cap-activations 4
ends_with 2 'use --chunks 2' --schedule zbv $size --chunks 3
ends_with 2 'stages' --schedule 1f1b --stages 0 --microbatches 8
ends_with 2 'microbatches' --schedule 1f1b --stages 4 --microbatches 0

# The graph: predicted as the schedule says, and run by workers.
"$weft" pipeline --schedule auto --stages 2 --microbatches 4 --cost F=10ms,I=12ms,W=7ms --hop 1ms --format graph > "$tmp/g.textproto" || failures=$((failures + 1))
"$weft" pipeline --schedule auto --stages 2 --microbatches 4 --cost F=10ms,I=12ms,W=7ms --hop 1ms > "$tmp/text" || failures=$((failures + 1))
"$weft" plan "$tmp/g.textproto" --simulate 1 > "$tmp/predicted" || failures=$((failures + 1))
makespan=$(sed -n 's/^makespan \([0-9.]* [a-z]*\),.*/\1/p' "$tmp/text")
check "prediction of $makespan" "grep -q 'take $makespan' '$tmp/predicted'"
trap '"$weft" down --name pipeline >/dev/null 2>&1' EXIT
"$weft" up --workers 4 --detach --name pipeline || exit 1
WEFT_CLUSTER=pipeline "$weft" run "$tmp/g.textproto" --repeat 3 > "$tmp/out" || failures=$((failures + 1))
check run "[ \$(grep -c 'end[01] F32\[1\]: 2.0' '$tmp/out') = 2 ]"
# Every schedule's graph, run by workers: all passes of all workers come to their ends.
for schedule in forward-only gpipe 1f1b eager-1f1b interleaved-1f1b looped-bfs zb-h1 zb-h2 zbv dualpipe-v auto "csv:$tmp/grid.csv"; do
  cost=F=1ms,I=1ms,W=1ms
  [ "$schedule" = forward-only ] && cost=F=1ms
  "$weft" pipeline --schedule "$schedule" $size --cost "$cost" --hop 100us --format graph > "$tmp/g.textproto" || failures=$((failures + 1))
  WEFT_CLUSTER=pipeline "$weft" run "$tmp/g.textproto" > "$tmp/out" 2> "$tmp/err"
  check "run of $schedule: $(cat "$tmp/err")" "[ \$(grep -c 'end[0-3] F32\[1\]: 0.0' '$tmp/out') = 4 ]"
done
"$weft" down --name pipeline || failures=$((failures + 1))

# Measured against predicted, on workers of its own; how close they are is for an idle machine to say.
bench() {  # code, words on stderr, arguments
  local code="$1" words="$2"
  shift 2
  "$weft" bench pipeline "$@" > "$tmp/out" 2> "$tmp/err"
  local got=$?
  check "bench pipeline $*" "[ $got = $code ]"
  [ -z "$words" ] || check "bench pipeline $*: $(cat "$tmp/err")" "grep -q -- '$words' '$tmp/err'"
}
bench 2 'the next above 10 is 12' --schedule interleaved-1f1b --stages 4 --microbatches 10
bench 2 'the smallest that works for it is 4' --schedule 1f1b $size --cap-activations 3
bench 2 'negative' --schedule 1f1b $size --cost F=-1,I=1,W=1
bench 2 'not a time' --schedule 1f1b $size --cost F=nan,I=1,W=1
bench 2 '--microbatches' --schedule 1f1b --stages 4
bench 3 'w0: W0 stands before I' --schedule "csv:$tmp/bad2.csv" --stages 1 --microbatches 1
bench 0 '' --schedule zb-h1 --stages 2 --microbatches 4 --cost F=2ms,I=2ms,W=2ms --hop 100us --executions 3 --in-flight 2 --json
for key in schedule stages microbatches schedule_s predicted_s measured_s ratio measured_min_s measured_max_s bubble_predicted bubble_measured \
  peak_activations predicted_period_s measured_period_s period_ratio; do
  check "bench json $key" "grep -q '\"$key\":' '$tmp/out'"
done
# 13 passes of 2 ms and four hops, by the closed form; nothing runs faster than delays let it.
check "bench prediction" "grep -q '\"predicted_s\": 0.0264' '$tmp/out'"
check "bench ratio" "sed -n 's/.*\"ratio\": \([0-9.]*\).*/\1/p' '$tmp/out' | awk '{ exit !(\$1 >= 0.99) }'"
[ "$failures" = 0 ] || exit 1
