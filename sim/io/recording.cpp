#include <ampscope/sim/io/recording.h>

#include <ampscope/formats/environment.h>
#include <ampscope/formats/names.h>
#include <ampscope/sim/base/number.h>
#include <ampscope/sim/io/dump_path.h>
#include <ampscope/sim/io/folder.h>
#include <ampscope/sim/io/json_reader.h>
#include <ampscope/sim/io/optimizer_state.h>
#include <ampscope/sim/io/run_layout.h>
#include <ampscope/sim/io/step_log.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

namespace amp {

namespace {

namespace fs = std::filesystem;

/// The number at the end of a file's stem, or of the name of a checkpoint's folder, if it stands by itself or after a
/// word such as "step" or "iter".
std::optional<std::int64_t> step_in_name(const fs::path& file) {
    std::error_code none;
    const std::string stem = (names_files(file) ? fs::absolute(file, none).parent_path() : file).stem().string();
    std::size_t begin = stem.size();
    while (begin > 0 && stem[begin - 1] >= '0' && stem[begin - 1] <= '9') --begin;
    const std::string_view before = std::string_view(stem).substr(0, begin);
    const bool apart = before.empty() || before.ends_with('_') || before.ends_with('-') || before.ends_with("step") ||
                       before.ends_with("iter");
    return apart ? number_of<std::int64_t>(std::string_view(stem).substr(begin)) : std::nullopt;
}

template <class T>
T parse_metadata(const TensorFile& file, const std::string& key, const std::string& text) {
    if (const std::optional<T> value = number_of<T>(text)) return *value;
    throw FileError(file.path(), "metadata: " + key + " '" + text + "' is not a number");
}

/// The kinds that a file states, by tensor.
std::map<std::string, TensorKind> stated_kinds(const TensorFile& file) {
    std::map<std::string, TensorKind> kinds;
    const auto& metadata = file.metadata();
    const auto text = metadata.find("kinds"), version = metadata.find("schema_version");
    if (text == metadata.end()) return kinds;
    const auto schema = version == metadata.end()
                            ? std::int64_t{1}
                            : parse_metadata<std::int64_t>(file, "schema_version", version->second);
    const auto json = parse_json(text->second, file.path(), "metadata: kinds: ", Nonfinite::refused);
    if (!json.is_object()) throw FileError(file.path(), "metadata: kinds must be a JSON object");
    for (const auto& item : json.items())
        kinds[item.key()] = taken(file.path(), "metadata: kind of '" + item.key() + "'",
                                  [&] { return parse_kind(item.value().get<std::string>(), schema); });
    return kinds;
}

/// The kind of a tensor that no file states, by its name.
TensorKind usual_kind(std::string_view tensor, bool in_state, TensorKind unstated) {
    constexpr std::array<std::string_view, 7> state_names = {
        ".m", ".v", ".row_var", ".col_var", ".compensation", ".delayed_scale", ".amax_history"};
    const auto ends = [&](std::string_view suffix) { return tensor.ends_with(suffix); };
    if (state_name(tensor) || is_setting(tensor)) return TensorKind::state;
    if (in_state) return std::ranges::any_of(state_names, ends) ? TensorKind::state : TensorKind::weight;
    if (ends(".out.grad")) return TensorKind::activation_gradient;
    return ends(".grad") ? TensorKind::weight_gradient : unstated;
}

/// Whether a tensor is a number of an optimizer's state, such as that of its steps: it is the same in many checkpoints,
/// and belongs to each.
bool is_scalar_state(const RecordedTensor& tensor) {
    return tensor.entry.count == 1 && state_name(tensor.entry.name).has_value();
}

/// Whether two tensors of the same size have the same bytes.
bool same_bytes(const TensorFile& a, std::size_t tensor_a, const TensorFile& b, std::size_t tensor_b) {
    const auto x = a.stream(tensor_a), y = b.stream(tensor_b);
    std::vector<std::byte> p(1 << 18), q(1 << 18);
    const auto chunk = static_cast<std::size_t>(p.size() / 24 * 24); // whole elements of any dtype
    for (;;) {
        const std::size_t n = x->read(std::span(p).first(chunk)), m = y->read(std::span(q).first(chunk));
        if (n != m || !std::equal(p.begin(), p.begin() + static_cast<std::ptrdiff_t>(n), q.begin())) return false;
        if (n < chunk) return true;
    }
}

class Finder {
  public:
    Finder(const OpenOptions& options, const FindOptions& find, Recording& result)
        : options_(options), find_(find), result_(result) {}

    /// The files that a path stands for.
    void expand(const fs::path& path, std::vector<fs::path>& files) {
        std::error_code none;
        if (!fs::is_directory(path, none)) return add_named(path, files);
        const std::size_t errors = result_.errors.size(), before = files.size() + result_.logs.size();
        list(path, files);
        if (files.size() + result_.logs.size() == before && result_.errors.size() == errors)
            result_.errors.push_back(path.string() + ": no .safetensors, .npy, .npz, .pt or .pth file in this folder" +
                                     about_log(path) + about_checkpoint(path));
    }

    /// Leaves out the files that belong to a checkpoint that is listed, too: their tensors are its own.
    void leave_out_parts(std::vector<fs::path>& files) const {
        std::erase_if(files, [&](const fs::path& file) { return parts_.contains(file.lexically_normal()); });
    }

    /// Adds warnings about the files as a whole.
    void warn() {
        for (const auto& [root, ranks] : ranks_) {
            const std::int64_t last = *ranks.rbegin(), missing = last + 1 - static_cast<std::int64_t>(ranks.size());
            if (ranks.size() == 1 || missing == 0) continue; // one alone is asked for
            std::int64_t first = 0;
            while (ranks.contains(first)) ++first;
            result_.warnings.push_back(root.string() + ": dumps up to rank " + std::to_string(last) +
                                       ", but none of rank " + std::to_string(first) +
                                       (missing == 1 ? "" : " and " + std::to_string(missing - 1) + " more") +
                                       ": their share of each gradient is not counted");
        }
        for (const auto& [files, count] : repeated_)
            result_.warnings.push_back(files.first.string() + ": " + std::to_string(count) +
                                       (count == 1 ? " tensor is" : " tensors are") + " the same as in " +
                                       files.second.string() + "; counted once");
        if (dumped_twice_ > 0 && !find_.by_name)
            result_.warnings.push_back(
                first_twice_.string() + ": the tensor stands there twice, before and after quantization" +
                (dumped_twice_ == 1 ? "" : ", as in " + std::to_string(dumped_twice_ - 1) + " more files") +
                ": --tensor high_precision or --tensor quantized selects one of them");
    }

    void add_file(const fs::path& path) {
        try {
            const auto file = open_tensor_file(path, options_);
            for (const std::string& note : file->notes()) result_.warnings.push_back(path.string() + ": " + note);
            if (is_rank_file(path))
                result_.warnings.push_back(path.string() + ": holds what one rank has of the tensors; name its folder "
                                                           "to count them whole");
            for (const FileError& problem : file->problems()) result_.errors.emplace_back(problem.what());
            const bool states_scale = file->metadata().contains("loss_scale");
            const auto log = log_of_.find(path);
            const auto backward = backward_of_.find(path);
            for (RecordedTensor& tensor : describe(*file, state_files_.contains(path))) {
                if (backward != backward_of_.end()) tensor.backward = backward->second;
                if (log != log_of_.end()) {
                    RecordedLog& of_run = result_.logs[log->second];
                    of_run.in_files |= of_run.merged ? KindSet{tensor.kind} : group_of(tensor.kind).kinds;
                }
                add_tensor(*file, std::move(tensor), states_scale);
            }
        } catch (const FileError& error) {
            result_.errors.emplace_back(error.what());
            if (const auto log = log_of_.find(path); log != log_of_.end()) // which kinds it holds is not known
                result_.logs[log->second].in_files = every_kind;
        }
    }

  private:
    /// Adds the tensor files of a folder, with links to nothing and pipes of such names: the user should learn why they
    /// cannot be read.
    void list(const fs::path& folder, std::vector<fs::path>& files) {
        if (is_there(folder / run_layout::configuration)) return list_run(folder, files);
        std::error_code none;
        const auto visit = [&](const fs::path& path, bool is_folder) {
            const bool raw = options_.dtype && (path.extension() == ".bin" || path.extension() == ".raw");
            if (!is_folder && (raw || is_tensor_file(path))) add_listed(path, files);
            if (!is_folder || fs::is_symlink(path, none) || !is_there(path / run_layout::configuration)) return true;
            list(path, files);
            return false;
        };
        walk_folder(folder, visit, result_.errors);
    }

    /// Why a folder of a distributed checkpoint cannot be read.
    static std::string about_checkpoint(const fs::path& folder) {
        std::error_code problem;
        for (fs::directory_iterator at(folder, problem), end; !problem && at != end; at.increment(problem))
            if (at->path().extension() == ".distcp") return "; its .distcp files need the .metadata saved with them";
        return "";
    }

    void add_named(const fs::path& path, std::vector<fs::path>& files) {
        files.push_back(path);
        for (const fs::path& part : files_of_index(path)) parts_.insert(part.lexically_normal());
    }

    /// Adds a file of a folder. The shards that ranks wrote are read through their folder.
    void add_listed(const fs::path& path, std::vector<fs::path>& files) {
        if (!is_rank_file(path)) return add_named(path, files);
        if (files.empty() || files.back() != path.parent_path()) files.push_back(path.parent_path());
    }

    /// Why the log of a folder without tensors is of no use, if it has one.
    [[nodiscard]] std::string about_log(const fs::path& folder) const {
        if (!is_there(folder / run_layout::histograms)) return "";
        if (!find_.logs) return "; its histograms.jsonl is for amp-histogram, amp-report and amp-loss-scale";
        return is_there(folder / run_layout::configuration) ? "; its histograms.jsonl is empty"
                                                            : "; its histograms.jsonl has no run.json beside it";
    }

    /// Adds the files of a run, at whatever depth below a path it was found.
    void list_run(const fs::path& run, std::vector<fs::path>& files) {
        if (const auto warning = newer_schema(run)) result_.warnings.push_back(*warning);
        const std::size_t first = files.size();
        std::error_code none;
        const bool replicas = find_.replicas && fs::is_directory(run / run_layout::replicas, none);
        list_part(run / (replicas ? run_layout::replicas : run_layout::gradients), files);
        const std::size_t state = files.size();
        if (find_.state) list_part(run / run_layout::state, files);
        else if (fs::is_directory(run / run_layout::state, none))
            result_.unread |= {TensorKind::weight, TensorKind::state};
        for (std::size_t i = state; i < files.size(); ++i) state_files_.insert(files[i]);
        const RunFacts facts = facts_of_run(run);
        const std::string& backward = facts.backward_format();
        for (std::size_t i = first; i < state; ++i) backward_of_[files[i]] = backward;
        const fs::path log = run / run_layout::histograms;
        if (!find_.logs || !is_there(log) || fs::is_empty(log, none)) return;
        const auto [known, is_new] = logs_.try_emplace(log, result_.logs.size());
        if (is_new) result_.logs.push_back({.file = log, .merged = facts.merged_ranks.has_value()});
        for (std::size_t i = first; i < files.size(); ++i) log_of_[files[i]] = known->second;
    }

    void list_part(const fs::path& part, std::vector<fs::path>& files) {
        std::error_code none;
        if (fs::is_directory(part, none)) list(part, files);
        else if (is_there(part)) result_.errors.push_back(part.string() + ": is no folder");
    }

    /// Of a file of TransformerEngine's DumpTensors, whose tensors all have the same names, the path says the rest.
    void describe_dump(const DumpPath& dump, std::vector<RecordedTensor>& tensors) {
        const auto begins = [](std::string_view prefix) {
            return [prefix](const RecordedTensor& t) { return t.entry.name.starts_with(prefix); };
        };
        const bool high = std::ranges::any_of(tensors, begins("high_precision"));
        const bool quantized = std::ranges::any_of(tensors, begins("quantized"));
        if (!high && !quantized) return;
        ranks_[dump.root].insert(dump.rank_number);
        for (RecordedTensor& t : tensors) {
            t.entry.name = dump.rank + "." + dump.stem + "." + t.entry.name;
            t.layer = dump.rank + "." + dump.layer;
            t.step = dump.step;
            t.kind = dump.kind;
        }
        if (high && quantized && dumped_twice_++ == 0) first_twice_ = tensors.front().file;
    }

    std::vector<RecordedTensor> describe(const TensorFile& file, bool in_state) {
        const auto& metadata = file.metadata();
        std::optional<std::int64_t> step = step_in_name(file.path());
        if (const auto it = metadata.find("step"); it != metadata.end())
            step = parse_metadata<std::int64_t>(file, "step", it->second);
        double scale = 1;
        if (const auto it = metadata.find("loss_scale"); it != metadata.end())
            scale = parse_metadata<double>(file, "loss_scale", it->second);
        if (!(scale > 0) || !std::isfinite(scale))
            throw FileError(file.path(), "metadata: loss_scale must be positive and finite");
        const bool states_scale = find_.recorded_scale || metadata.contains("loss_scale");
        scale = find_.recorded_scale.value_or(scale);
        const std::map<std::string, TensorKind> kinds = stated_kinds(file);
        const bool is_checkpoint = std::ranges::any_of(
            file.tensors(), [](const TensorEntry& entry) { return state_name(entry.name).has_value(); });
        const TensorKind unstated = is_checkpoint ? TensorKind::weight : find_.unstated;
        std::vector<RecordedTensor> tensors;
        for (std::size_t i = 0; i < file.tensors().size(); ++i) {
            const TensorEntry& entry = file.tensors()[i];
            const auto stated = kinds.find(entry.name);
            const TensorKind kind = stated == kinds.end() ? usual_kind(entry.name, in_state, unstated) : stated->second;
            tensors.push_back({.file = file.path(),
                               .index = i,
                               .entry = entry,
                               .layer = layer_of(entry.name),
                               .step = step,
                               .kind = kind,
                               .recorded_scale = is_gradient(kind) ? scale : 1,
                               .scale_stated = !is_gradient(kind) || states_scale,
                               .random_access = file.random_access(i)});
        }
        if (const auto dump = dump_path(file.path())) describe_dump(*dump, tensors);
        return tensors;
    }

    /// Lists a repeated tensor once, from a file that states its loss scale if there is one (.npy and .npz cannot state
    /// it). The same bytes under two stated scales count as two tensors.
    void add_tensor(const TensorFile& file, RecordedTensor tensor, bool states_scale) {
        if (find_.repeats) return result_.tensors.push_back(std::move(tensor));
        const Key key{tensor.entry.name, tensor.step, tensor.entry.bytes};
        for (auto [it, end] = seen_.equal_range(key); it != end; ++it) {
            Seen& seen = it->second;
            RecordedTensor& earlier = result_.tensors[seen.tensor];
            if (earlier.file == tensor.file && earlier.index != tensor.index) continue;
            if (earlier.file != tensor.file && is_scalar_state(tensor)) continue;
            if (states_scale && seen.states_scale && earlier.recorded_scale != tensor.recorded_scale) continue;
            if (earlier.file != tensor.file && !same_bytes(opened(earlier.file), earlier.index, file, tensor.index))
                continue;
            if (states_scale && !seen.states_scale) {
                std::swap(earlier, tensor);
                seen.states_scale = true;
            }
            ++repeated_[{tensor.file, earlier.file}];
            return;
        }
        seen_.emplace(key, Seen{result_.tensors.size(), states_scale});
        result_.tensors.push_back(std::move(tensor));
    }

    /// An earlier file. It is kept open, as files that repeat others mostly do so as a whole.
    const TensorFile& opened(const fs::path& path) {
        if (!earlier_ || earlier_->path() != path) earlier_ = open_tensor_file(path, options_);
        return *earlier_;
    }

    using Key = std::tuple<std::string, std::optional<std::int64_t>, std::uint64_t>;

    const OpenOptions& options_;
    const FindOptions& find_;
    Recording& result_;
    std::set<fs::path> parts_;                      ///< files that an index names
    std::set<fs::path> state_files_;                ///< files in state/ of runs
    std::map<fs::path, std::size_t> logs_, log_of_; ///< index in Recording::logs: of a log, and of a file of the run
    std::map<fs::path, std::string> backward_of_;   ///< by file of a run: the format in which its backward computes
    std::unique_ptr<TensorFile> earlier_;
    struct Seen {
        std::size_t tensor; ///< index in the result
        bool states_scale;
    };
    std::multimap<Key, Seen> seen_;
    std::map<fs::path, std::set<std::int64_t>> ranks_; ///< by folder: the ranks with files of DumpTensors below it
    std::size_t dumped_twice_ = 0; ///< files of DumpTensors that hold a tensor before and after quantization
    fs::path first_twice_;
    std::map<std::pair<fs::path, fs::path>, std::size_t>
        repeated_; ///< (file, the one listed in its place) -> number of tensors
};

} // namespace

std::string_view name_of(TensorKind kind) { return tensor_kind_names[static_cast<std::size_t>(kind)]; }

std::string names_of(KindSet kinds) {
    std::string names;
    for (std::size_t i = 0; i < tensor_kind_names.size(); ++i)
        if (kinds.has(static_cast<TensorKind>(i)))
            names += (names.empty() ? "" : ", ") + std::string(tensor_kind_names[i]);
    return names;
}

const KindGroup& group_of(TensorKind kind) {
    return *std::ranges::find_if(kind_groups, [&](const KindGroup& group) { return group.kinds.has(kind); });
}

TensorKind parse_kind(std::string_view name, std::int64_t schema_version) {
    const auto kind = parse_name<TensorKind>("kind of tensor", tensor_kind_names, name);
    if (schema_version > 1) return kind;
    if (kind == TensorKind::weight) return TensorKind::weight_gradient;
    return kind == TensorKind::activation ? TensorKind::activation_gradient : kind;
}

std::string layer_of(std::string_view tensor) {
    if (tensor.ends_with(".grad")) tensor.remove_suffix(5);
    for (const std::string_view suffix : {".weight", ".bias", ".out", ".in_proj_weight", ".in_proj_bias"})
        if (tensor.ends_with(suffix)) return std::string(tensor.substr(0, tensor.size() - suffix.size()));
    return std::string(tensor);
}

RecordingError::RecordingError(std::vector<std::string> lines)
    : std::runtime_error(lines.front()), lines_(std::move(lines)) {}

Recording find_tensors(const std::vector<fs::path>& paths, const OpenOptions& options, const FindOptions& find) {
    const FloatEnvironment environment;
    Recording result;
    Finder finder(options, find, result);
    std::vector<fs::path> files;
    for (const fs::path& path : paths) finder.expand(path, files);
    finder.leave_out_parts(files);
    std::ranges::sort(files);
    for (const fs::path& file : files) finder.add_file(file);
    finder.warn();
    return result;
}

} // namespace amp
