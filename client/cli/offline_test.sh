#!/bin/bash
# The worked example of docs/offline.md, whose printed results must be what the commands print, and the ways in which things go wrong.
# No daemon runs.
set -u
weft="$PWD/client/cli/weft"
page="$PWD/docs/offline.md"
tmp="${TEST_TMPDIR:-$(mktemp -d)}"
export XDG_RUNTIME_DIR="$tmp/run"
mkdir -p -m 0700 "$XDG_RUNTIME_DIR"
unset WEFT_ADDRESS WEFT_CLUSTER
. tests/shell/checks.sh
# exits CODE COMMAND...: output in $tmp/out, errors in $tmp/err.
exits() {
  local want=$1
  shift
  "$@" > "$tmp/out" 2> "$tmp/err"
  local got=$?
  [ "$got" = "$want" ] || fail "\`$*\` ended with $got, not $want: $(head -c 2000 "$tmp/err")"
}
has() { grep -qF -- "$2" "$1" || fail "$1 lacks \"$2\": $(head -c 2000 "$1")"; }
# Every line of FILE stands on the page; hashes of plans, which change with the format, may differ.
plain() { sed 's/[0-9a-f]\{16\}/HASH/g' "$1"; }
on_page() {
  plain "$page" > "$tmp/page"
  plain "$1" > "$tmp/expected"
  while IFS= read -r line; do grep -qxF -- "$line" "$tmp/page" || fail "docs/offline.md lacks the line: $line"; done < "$tmp/expected"
}

cd examples/offline || exit 1
files=(--cluster cluster.textproto --costs costs.textproto)

# The page: its files, and what it says is printed.
grep -v '^#' cluster.textproto > "$tmp/cluster" && on_page "$tmp/cluster"
on_page costs.textproto
exits 0 "$weft" simulate graph.textproto "${files[@]}" --executions 10
on_page "$tmp/out"
has "$tmp/out" 'take 79.500 ms, 5.833 ms each'

exits 0 "$weft" plan graph.textproto "${files[@]}" -o "$tmp/plan.txt"
exits 0 "$weft" verify "$tmp/plan.txt" --cluster cluster.textproto
has "$tmp/out" 'are good'
sed '/RECV/s/ waits buffer:[^ ]*//' "$tmp/plan.txt" > "$tmp/damaged.txt"
exits 3 "$weft" verify "$tmp/damaged.txt"
sed "s|^weft: $tmp/|weft: |" "$tmp/err" > "$tmp/lines" && on_page "$tmp/lines"
has "$tmp/err" 'w2: RECV encode:0 -> rank:0'
exits 3 "$weft" verify "$tmp/damaged.txt" --json
has "$tmp/out" '"ok": false'
has "$tmp/out" '"rule": "V5"'

# Shown all the same, with a warning; a good one without.
exits 0 "$weft" simulate "$tmp/damaged.txt" "${files[@]}"
has "$tmp/err" 'workers would refuse this plan: V5 w2: RECV encode:0'
has "$tmp/err" 'and 1 more'
exits 0 "$weft" draw "$tmp/damaged.txt"
has "$tmp/err" 'workers would refuse this plan'
exits 0 "$weft" simulate "$tmp/plan.txt" "${files[@]}"
[ ! -s "$tmp/err" ] || fail "a good plan is complained of: $(cat "$tmp/err")"

# Options that would do nothing, and outputs that are no files.
exits 2 "$weft" plan graph.textproto --in-flight 2
has "$tmp/err" '--in-flight is of a simulation'
exits 2 "$weft" plan graph.textproto --simulate 2 -o "$tmp/x"
exits 2 "$weft" simulate graph.textproto "${files[@]}" --bytes
has "$tmp/err" 'add --json or --draw'
exits 2 "$weft" plan graph.textproto --workers -1
has "$tmp/err" 'is not a whole number'
exits 2 "$weft" plan graph.textproto -o /dev/full
has "$tmp/err" 'cannot write /dev/full: No space left on device'

# All forms of a plan are one plan.
exits 0 "$weft" plan "$tmp/plan.txt" --format wire -o "$tmp/plan.wire"
exits 0 "$weft" plan "$tmp/plan.wire" --format json -o "$tmp/plan.json"
exits 0 "$weft" plan "$tmp/plan.json" -o "$tmp/again.txt"
cmp "$tmp/plan.txt" "$tmp/again.txt" || fail "the plan changed from form to form"
exits 0 "$weft" simulate "$tmp/plan.wire" "${files[@]}" --executions 10
has "$tmp/out" 'take 79.500 ms, 5.833 ms each'
exits 0 "$weft" simulate "$tmp/plan.txt" "${files[@]}" --executions 10 --end-barrier --bytes --json
has "$tmp/out" '"end_barrier": true'
has "$tmp/out" '"bytes": ['
exits 0 "$weft" simulate "$tmp/plan.txt" "${files[@]}" --executions 1 --json
has "$tmp/out" '"makespan_s": 0.027,'

# Pictures.
exits 0 "$weft" draw "$tmp/plan.txt" "${files[@]}" --executions 3 -o "$tmp/plan.svg"
has "$tmp/plan.svg" 'marker-end="url(#arrow)"'
has "$tmp/plan.svg" 'bytes in use, at most'
exits 0 "$weft" draw graph.textproto --cluster cluster.textproto --format dot
has "$tmp/out" 'label="w2 (host b, cpu)"'
exits 0 "$weft" draw graph.textproto
has "$tmp/out" '</svg>'
exits 0 "$weft" draw "$tmp/plan.txt" --format dot --what plan
has "$tmp/out" 'label="RECV encode:0 -> rank:0"'
exits 0 "$weft" simulate graph.textproto --draw "$tmp/times.json"
has "$tmp/times.json" 'traceEvents'

# The overlap micro-cases: a producer (P), a transfer (x), a consumer (C), m items; S buffers to send from, R to receive into.
cat > "$tmp/micro.textproto" << 'END'
name: "micro"
actor { name: "p" class: "std.Delay" worker: "w0" config { dtype: F32 shape: "[4]" } }
actor { name: "c" class: "std.Delay" worker: "w1" }
node { name: "P" actor: "p" config { duration_s: 1 } }
node { name: "C" actor: "c" arg { node: "P" } config { duration_s: 1 } }
output { name: "y" node: "C" }
options { prefetch_depth: 1 emulate { latency_s: 1 } }
END
exits 0 "$weft" plan "$tmp/micro.textproto" -o "$tmp/22.txt"
s1='s/^\(op 0 .*\) slots 2 waits buffer:1@2/\1 slots 1 waits buffer:1@1/'
r1='s/^\(op 2 .*\) slots 2 waits buffer:3@2/\1 slots 1 waits buffer:3@1/;s/^\(edge 0 .*\) slots 2/\1 slots 1/'
sed "$s1" "$tmp/22.txt" > "$tmp/12.txt"
sed "$r1" "$tmp/22.txt" > "$tmp/21.txt"
sed "$s1;$r1" "$tmp/22.txt" > "$tmp/11.txt"
while read -r p x c m none s2 r2 both; do
  echo "node { node: \"P\" time_s: $p } node { node: \"C\" time_s: $c } edge { from: \"P\" to: \"C\" time_s: $x }" > "$tmp/micro.costs"
  for want in "11 $none" "21 $s2" "12 $r2" "22 $both"; do
    set -- $want
    exits 0 "$weft" simulate "$tmp/$1.txt" --costs "$tmp/micro.costs" --executions "$m" --in-flight 64
    has "$tmp/out" "take $2.000 s,"
  done
  exits 0 "$weft" simulate "$tmp/micro.textproto" --overlap off --costs "$tmp/micro.costs" --executions "$m" --in-flight 64
  has "$tmp/out" "take $none.000 s,"
done << 'END'
10 5 10 10 160 160 160 115
4 5 10 10 154 154 109 109
5 10 5 10 155 155 155 110
10 10 10 20 410 410 410 220
END

# What goes wrong.
try() {  # FILE-CONTENT ERROR: as the cost file
  echo "$1" > "$tmp/costs"
  exits 2 "$weft" simulate graph.textproto --costs "$tmp/costs"
  has "$tmp/err" "$2"
}
try 'node { node: "read" time_s: -1 } default_node_s: 0' 'costs: node[0].time_s: -1 is negative: seconds from 0 to'
try 'node { node: "read" time_s: nan } default_node_s: 0' 'node[0].time_s: nan is not a number'
try 'node { node: "read" time_s: inf } default_node_s: 0' 'node[0].time_s: inf is infinite'
try 'node { node: "read" } default_node_s: 0' 'node[0].time_s: is missing for node "read"; 0 is the smallest that works'
try 'node { node: "read" time_s: 1 }' 'no cost for node "encode" (std.Math scale)'
try 'node { node: "raed" time_s: 1 } default_node_s: 0' '(did you mean "read"?)'
try 'node { node: "read" time: 1 }' 'has no field named "time"'
try 'graph: "other" default_node_s: 0' 'costs of graph "other", not of "stages"'
exits 2 "$weft" simulate graph.textproto --costs /nonexistent
exits 2 "$weft" verify /nonexistent
exits 2 "$weft" verify "$tmp/plan.txt" --overlap off
has "$tmp/err" 'is a plan'
exits 2 "$weft" plan graph.textproto --cluster cluster.textproto --workers 3
echo 'worker { name: "w0" } worker { name: "w1" memory_bytes: 1000000 } worker { name: "w2" }' > "$tmp/small"
exits 3 "$weft" plan graph.textproto --cluster "$tmp/small"
has "$tmp/err" 'memory_bytes of the worker in the cluster file allows 1000000'
exits 3 "$weft" verify "$tmp/plan.txt" --cluster "$tmp/small"
has "$tmp/err" 'shares its host with other workers'
head -n 5 "$tmp/plan.txt" > "$tmp/cut.txt"
exits 3 "$weft" verify "$tmp/cut.txt"
head -c 200 "$tmp/plan.wire" > "$tmp/cut.wire"
exits 3 "$weft" simulate "$tmp/cut.wire"
# encode made to wait for the send of what it makes.
sed 's/^\(op 3 .*\) waits /\1 waits no_overlap:4 /' "$tmp/plan.txt" > "$tmp/stuck.txt"
exits 3 "$weft" verify "$tmp/stuck.txt"
has "$tmp/err" 'V4 these ops wait for each other for ever'
exits 3 "$weft" simulate "$tmp/stuck.txt"
has "$tmp/err" 'w1 compute: COMPUTE encode of execution 0 waits for w1: SEND encode:0 -> rank:0 of execution 0 (NO_OVERLAP)'

[ "$failures" = 0 ] || exit 1
