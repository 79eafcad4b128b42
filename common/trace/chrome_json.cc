#include "common/trace/chrome_json.h"

#include <cstdio>
#include <map>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/plan/plan.h"

namespace weft {
namespace {

std::string Quoted(const std::string& s) {
  std::string out = "\"";
  for (const unsigned char c : s) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c < 0x20) {
      out += absl::StrFormat("\\u%04x", c);
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + "\"";
}

// Nanoseconds as decimal microseconds, exactly.
std::string Micros(Nanos n) {
  const char* sign = n < 0 ? "-" : "";
  const uint64_t u = n < 0 ? -static_cast<uint64_t>(n) : static_cast<uint64_t>(n);
  return absl::StrFormat("%s%d.%03d", sign, u / 1000, u % 1000);
}

const char* Category(v1::OpKind kind) {
  switch (kind) {
    case v1::COMPUTE: return "compute";
    case v1::COLLECTIVE: return "collective";
    default: return "transfer";
  }
}

class Writer {
 public:
  explicit Writer(std::string* out) : out_(*out) {}

  void Add(const std::string& event) {
    if (!first_) out_ += ",\n";
    first_ = false;
    out_ += event;
  }

  void Panel(const TimelinePanel& panel, const char* what, int first_pid) {
    std::map<std::string, int> pids;
    std::map<std::string, int> lanes_of;
    // Where each send stands, for the arrows.
    struct Place {
      int pid, tid;
      Nanos at;
    };
    std::unordered_map<std::string, Place> sends;
    for (int pass = 0; pass < 2; ++pass) {
      lanes_of.clear();
      for (const TimelineLane& lane : panel.lanes) {
        auto [pid_it, fresh] = pids.try_emplace(lane.worker, first_pid + static_cast<int>(pids.size()));
        const int pid = pid_it->second;
        const int tid = ++lanes_of[lane.worker];
        if (fresh) {
          Add(absl::StrCat(R"({"ph":"M","name":"process_name","pid":)", pid, R"(,"args":{"name":)",
                           Quoted(absl::StrCat(lane.worker, " (", what, ")")), "}}"));
          Add(absl::StrCat(R"({"ph":"M","name":"process_sort_index","pid":)", pid, R"(,"args":{"sort_index":)", pid, "}}"));
        }
        if (pass == 0) {
          Add(absl::StrCat(R"({"ph":"M","name":"thread_name","pid":)", pid, R"(,"tid":)", tid, R"(,"args":{"name":)",
                           Quoted(LaneName(lane.kind, lane.index)), "}}"));
          Add(absl::StrCat(R"({"ph":"M","name":"thread_sort_index","pid":)", pid, R"(,"tid":)", tid,
                           R"(,"args":{"sort_index":)", tid, "}}"));
        }
        for (const TimelineBar& bar : lane.bars) {
          const bool send = bar.kind == v1::SEND || bar.kind == v1::WRITE;
          if (pass == 0) {
            Event(bar, pid, tid);
            if (send) sends[Key(bar)] = {pid, tid, bar.start};
          } else if (bar.kind == v1::RECV || bar.kind == v1::READ) {
            const auto it = sends.find(Key(bar));
            if (it == sends.end()) continue;
            ++arrows_;
            Arrow("s", "", it->second.pid, it->second.tid, it->second.at);
            Arrow("f", R"(,"bp":"e")", pid, tid, bar.end);
          }
        }
      }
    }
  }

 private:
  static std::string Key(const TimelineBar& bar) {
    return absl::StrCat(bar.execution, "#", bar.name.substr(bar.name.find(' ') + 1));
  }

  void Event(const TimelineBar& bar, int pid, int tid) {
    Add(absl::StrCat(R"({"ph":"X","name":)", Quoted(bar.name), R"(,"cat":")", Category(bar.kind), R"(","pid":)", pid, R"(,"tid":)",
                     tid, R"(,"ts":)", Micros(bar.start), R"(,"dur":)", Micros(bar.end - bar.start),
                     R"(,"args":{"execution":)", bar.execution, R"(,"op":)", bar.op,
                     bar.error ? R"(,"error":true})" : "}", bar.error ? R"(,"cname":"terrible"})" : "}"));
  }

  void Arrow(const char* phase, const char* more, int pid, int tid, Nanos at) {
    Add(absl::StrCat(R"({"ph":")", phase, R"(","name":"transfer","cat":"edge","id":)", arrows_, R"(,"pid":)", pid, R"(,"tid":)",
                     tid, R"(,"ts":)", Micros(at), more, "}"));
  }

  std::string& out_;
  bool first_ = true;
  int64_t arrows_ = 0;
};

}  // namespace

std::string ToChromeJson(const Timeline& timeline, const std::string& graph) {
  std::string out = "{\"traceEvents\":[\n";
  Writer writer(&out);
  writer.Panel(timeline.measured, "measured", 1);
  writer.Panel(timeline.predicted, "predicted", 100001);
  absl::StrAppend(&out, "\n],\"displayTimeUnit\":\"ms\",\"otherData\":{\"graph\":", Quoted(graph),
                  ",\"clock_error_ns\":", timeline.measured.clock_error, "}}\n");
  return out;
}

}  // namespace weft
