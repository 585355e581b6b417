#include <ampscope/sim/train/run_folder.h>

#include <ampscope/formats/environment.h>
#include <ampscope/sim/analysis/count.h>
#include <ampscope/sim/analysis/histogram_log.h>
#include <ampscope/sim/base/fingerprint.h>
#include <ampscope/sim/io/json_reader.h>
#include <ampscope/sim/io/json_value.h>
#include <ampscope/sim/io/run_layout.h>
#include <ampscope/sim/io/write.h>
#include <ampscope/sim/train/configuration.h>
#include <ampscope/sim/train/detail/run_tensors.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <new>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace amp {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace layout = run_layout;
using detail::gradients_of, detail::gradients_of_replicas, detail::activations_of, detail::weights_of, detail::state_of,
    detail::recorded_state_of;
using detail::metadata_of, detail::write_tensors;
using detail::NamedTensor, detail::NamedTensors;
using layout::step_file;
using layout::step_of;

[[noreturn]] void fail(const fs::path& path, std::string_view what) {
    throw FileError(path, fmt::format("{}: {}", what, std::strerror(errno)));
}

constexpr const char* broken_state = "its state cannot be read"; // for wrong data besides tensors

void check_file(const fs::path& file) {
    std::error_code none;
    if (!is_there(file)) return;
    if (!fs::is_regular_file(file, none)) throw FileError(file, "is no regular file");
    if (::access(file.c_str(), W_OK) != 0) fail(file, "cannot be written");
    if (fs::is_symlink(file, none)) const AtomicFile probe(file); // access() says yes to a link to /proc/self/mem
}

/// Throws FileError if something else is in the place of a run's files or folders, or they are not writable.
void check_places(const fs::path& run) {
    for (const char* part : layout::files) check_file(run / part);
    for (const char* part : layout::folders) {
        const fs::path folder = run / part;
        std::error_code none;
        if (!is_there(folder)) continue;
        if (!fs::is_directory(folder, none)) throw FileError(folder, "is no folder");
        if (::access(folder.c_str(), R_OK | W_OK | X_OK) != 0) fail(folder, "cannot be written");
        if (fs::is_symlink(folder, none)) const AtomicFile probe(folder / "probe"); // say, a link to /proc
        for (const fs::directory_entry& entry : fs::directory_iterator(folder, none))
            if (step_of(entry.path().filename())) check_file(entry.path());
    }
}

/// Throws FileError if a log is shorter than a resumed run needs.
void check_log(const fs::path& log, std::uint64_t bytes) {
    if (!fs::exists(log) || fs::file_size(log) < bytes)
        throw FileError(log, "is shorter than its checkpoint says: lines were lost");
}

void make_folder(const fs::path& folder) {
    std::error_code error;
    if (fs::create_directories(folder, error); error) throw FileError(folder, "cannot be made: " + error.message());
}

/// What the folder holds of a run without run.json; empty if nothing. If a program was killed before it had written
/// run.json, the files are all empty.
std::string_view part_of_a_run(const fs::path& path) {
    for (const char* part : {layout::metrics, layout::histograms, layout::result, layout::gradients, layout::replicas,
                             layout::state, layout::checkpoints})
        if (fs::exists(path / part) && !fs::is_empty(path / part)) return part;
    return {};
}

std::string fingerprint_of(const Json& json) {
    const std::string text = json.dump();
    Fingerprint fingerprint;
    fingerprint.add(std::as_bytes(std::span(text)));
    return fingerprint.text();
}

} // namespace

LineFile::LineFile(fs::path path)
    : path_(std::move(path)), descriptor_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
    if (descriptor_ < 0) fail(path_, "cannot be opened");
}

LineFile::LineFile(fs::path path, std::uint64_t keep) : LineFile(std::move(path)) {
    length_ = keep; // whatever throws from here on closes the file: the object exists already
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0) fail(path_, "cannot be read");
    if (static_cast<std::uint64_t>(status.st_size) < keep)
        throw FileError(path_, "is shorter than its checkpoint says: lines were lost");
    if (::ftruncate(descriptor_, static_cast<off_t>(keep)) != 0) fail(path_, "cannot be cut back");
}

LineFile::LineFile(LineFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), length_(other.length_) {}

LineFile::~LineFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

void LineFile::append(const Json& line) {
    const std::string text = line.dump() + "\n";
    for (std::size_t at = 0; at < text.size();) {
        const ssize_t n = ::write(descriptor_, text.data() + at, text.size() - at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            const int reason = errno;
            if (::ftruncate(descriptor_, static_cast<off_t>(length_)) == 0) errno = reason;
            fail(path_, "cannot be written");
        }
        at += static_cast<std::size_t>(n);
    }
    length_ += text.size();
}

std::uint64_t LineFile::sync() {
    if (::fsync(descriptor_) != 0) fail(path_, "cannot be written");
    return length_;
}

RunFolder::RunFolder(fs::path path, const Json& configuration, bool resume)
    : path_(std::move(path)), lock_(std::make_unique<FolderLock>(path_)), configuration_(configuration) {
    check_places(path_);
    begun_ = fs::exists(path_ / layout::configuration);
    if (!begun_) {
        if (const std::string_view part = part_of_a_run(path_); !part.empty())
            throw FileError(path_, fmt::format("holds {}, but no run.json; name another folder", part));
        return;
    }
    if (!resume)
        throw FileError(path_ / layout::configuration,
                        "holds a run already; name another folder, or go on with it by --resume");
    if (const std::string where = difference(read_json_object(path_ / layout::configuration), configuration);
        !where.empty())
        throw FileError(path_ / layout::configuration,
                        fmt::format("{} differs from this run's: resume with the {} it began with", where,
                                    where.ends_with("version") ? "program" : "options"));
}

bool RunFolder::ended() const {
    std::error_code none;
    return begun_ && fs::exists(path_ / layout::result, none);
}

bool RunFolder::holds_steps() const {
    std::error_code none;
    const std::uintmax_t bytes = fs::file_size(path_ / layout::metrics, none);
    return begun_ && ((!none && bytes > 0) || !checkpoints(path_).empty());
}

std::int64_t RunFolder::logged_steps() const {
    const fs::path log = path_ / layout::metrics;
    if (!is_there(log)) return 0;
    TextFile file(log);
    std::int64_t steps = 0;
    for (std::string line; file.next_line(line);) steps += file.ended() ? 0 : 1;
    return steps;
}

void RunFolder::begin() {
    std::error_code error, none;
    for (const char* part : {layout::gradients, layout::checkpoints}) make_folder(path_ / part);
    remove_partial_files(path_);
    if (fs::remove(path_ / layout::result, error); error) // the run goes on and will have another result
        throw FileError(path_ / layout::result, "cannot be removed: " + error.message());
    // Of steps that will be repeated, or not be reached.
    for (const char* part : {layout::gradients, layout::replicas, layout::state})
        for (const fs::directory_entry& entry : fs::directory_iterator(path_ / part, none))
            if (step_of(entry.path().filename()).value_or(-1) >= step_) {
                fs::remove(entry.path(), error);
                if (error) throw FileError(entry.path(), "cannot be removed: " + error.message());
            }
    std::vector<std::int64_t> steps = checkpoints(path_); // a killed program may have left three
    std::erase_if(steps, [&](std::int64_t step) { return step > step_; });
    if (steps.size() > 2) remove_checkpoints_before(steps[steps.size() - 2]);
    metrics_.emplace(path_ / layout::metrics, metrics_bytes_);
    histograms_.emplace(path_ / layout::histograms, histograms_bytes_);
    if (!begun_) write_text_file(path_ / layout::configuration, configuration_.dump(1) + "\n");
}

std::vector<std::int64_t> RunFolder::checkpoints(const fs::path& path) {
    std::vector<std::int64_t> steps;
    std::error_code none;
    for (const fs::directory_entry& entry : fs::directory_iterator(path / layout::checkpoints, none))
        if (const auto step = step_of(entry.path().filename())) steps.push_back(*step);
    std::ranges::sort(steps);
    return steps;
}

void RunFolder::record_tensors(const Trainer& trainer, const StepResult& step, bool activations, bool state) {
    NamedTensors tensors = gradients_of(trainer);
    const auto add = [](NamedTensors& to, const NamedTensors& more) { to.insert(to.end(), more.begin(), more.end()); };
    if (activations) add(tensors, activations_of(trainer));
    NamedTensors counted = tensors;
    if (activations) add(counted, weights_of(trainer));
    const NamedTensors& written = state ? tensors : counted; // state/ has the weights already
    std::map<std::string, std::string> metadata = metadata_of(written, step.step);
    metadata["loss_scale"] = fmt::format("{}", step.scale);
    write_tensors(path_ / layout::gradients / step_file(step.step), trainer, written, metadata);
    for (const NamedTensor& tensor : counted) {
        MagnitudeCounter counter(DType::f32);
        const auto bytes = std::as_bytes(trainer.backend()[tensor.id]);
        for (std::size_t at = 0; at < bytes.size(); at += sum_block * sizeof(float))
            counter.add(bytes.subspan(at, std::min(sum_block * sizeof(float), bytes.size() - at)));
        histograms_->append(histogram_line({.step = step.step,
                                            .tensor = tensor.name,
                                            .kind = tensor.kind,
                                            .format = std::string(trainer.backend().info(tensor.id).format.name),
                                            .scale = is_gradient(tensor.kind) ? step.scale : 1,
                                            .magnitudes = counter.statistics().histogram}));
    }
    if (state) record_state(trainer);
}

void RunFolder::record_replicas(const Trainer& trainer, const StepResult& step) {
    make_folder(path_ / layout::replicas);
    const NamedTensors tensors = gradients_of_replicas(trainer);
    std::map<std::string, std::string> metadata = metadata_of(tensors, step.step);
    metadata["loss_scale"] = fmt::format("{}", step.scale);
    write_tensors(path_ / layout::replicas / step_file(step.step), trainer, tensors, metadata);
}

void RunFolder::record_state(const Trainer& trainer) {
    make_folder(path_ / layout::state);
    const NamedTensors tensors = recorded_state_of(trainer);
    write_tensors(path_ / layout::state / step_file(trainer.steps()), trainer, tensors,
                  metadata_of(tensors, trainer.steps()));
}

void RunFolder::checkpoint(const Trainer& trainer, const Json& notes, std::int64_t step, std::int64_t oldest) {
    const Trainer::State state = trainer.state();
    nlohmann::json scaler;
    to_json(scaler, state.scaler);
    const Json text = {{"checkpoint", step},
                       {"configuration", fingerprint_of(configuration_)},
                       {"step", state.step},
                       {"updates", state.updates},
                       {"scaler", scaler},
                       {"metrics_bytes", metrics_->sync()},
                       {"histograms_bytes", histograms_->sync()},
                       {"notes", notes}};
    write_tensors(path_ / layout::checkpoints / step_file(step), trainer, state_of(trainer), {{"state", text.dump()}},
                  true);
    remove_checkpoints_before(oldest);
}

void RunFolder::remove_checkpoints_before(std::int64_t oldest) const {
    for (const std::int64_t earlier : checkpoints(path_))
        if (earlier < oldest) fs::remove(path_ / layout::checkpoints / step_file(earlier));
}

void RunFolder::write_result(const Json& result) const {
    write_text_file(path_ / layout::result, result.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

Checkpoint RunFolder::open_checkpoint(const fs::path& path, std::int64_t step) {
    const fs::path file = path / layout::checkpoints / step_file(step);
    check_seal(file);
    return taken(file, broken_state, [&] {
        Checkpoint checkpoint{.file = open_tensor_file(file), .state = {}};
        checkpoint.state = parse_json(checkpoint.file->metadata().at("state"), file, "state: ", Nonfinite::refused);
        if (const std::int64_t own = checkpoint.state.at("checkpoint"); own != step)
            throw FileError(file, fmt::format("is the checkpoint of step {} under another name; rename it", own));
        return checkpoint;
    });
}

void RunFolder::restore(Trainer& trainer, std::int64_t step, const std::function<void(const Json& notes)>& read) {
    const FloatEnvironment environment;
    const Checkpoint checkpoint = open_checkpoint(path_, step);
    const auto& file = checkpoint.file;
    const Json& state = checkpoint.state;
    taken(file->path(), broken_state, [&] {
        if (state.at("configuration") != fingerprint_of(configuration_))
            throw FileError(file->path(), "is a checkpoint of another run");
        for (const TensorId id : trainer.state_tensors()) {
            const TensorInfo& t = trainer.backend().info(id);
            const auto entry = std::ranges::find(file->tensors(), t.name, &TensorEntry::name);
            if (entry == file->tensors().end() || entry->count != static_cast<std::uint64_t>(t.count()) ||
                entry->dtype != DType::f32)
                throw FileError(file->path(), t.name + ": missing or of another shape");
            file->read_at(static_cast<std::size_t>(entry - file->tensors().begin()), 0,
                          std::as_writable_bytes(trainer.backend()[id]));
        }
        metrics_bytes_ = state.at("metrics_bytes");
        histograms_bytes_ = state.at("histograms_bytes");
        check_log(path_ / layout::metrics, metrics_bytes_);
        check_log(path_ / layout::histograms, histograms_bytes_);
        Trainer::State to{.step = state.at("step"), .updates = state.at("updates")};
        from_json(nlohmann::json(state.at("scaler")), to.scaler);
        trainer.restore(to);
        read(state.at("notes"));
        step_ = step;
    });
}

void remove_partial_files(const fs::path& run) {
    std::vector<fs::path> folders = {run};
    for (const char* part : layout::folders) folders.push_back(run / part);
    for (const fs::path& folder : folders) {
        std::error_code none;
        for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
            const std::string target = target_of_partial(entry.path()).filename();
            const bool of_run = target == layout::configuration || target == layout::result;
            if (folder == run ? of_run : step_of(target).has_value()) fs::remove(entry.path(), none);
        }
    }
}

Json scalings_of(const Backend& backend) {
    Json json;
    for (std::size_t i = 0; i < backend.scalings().size(); ++i) {
        const ScalingCounts& c = backend.scalings()[i];
        if (c.elements == 0) continue;
        Json& tensor = json[backend.program().tensors[i].name];
        tensor = {{"amax", finite_or_null(c.amax)},
                  {"scale", finite_or_null(c.largest_scale)},
                  {"nonzero", c.nonzero},
                  {"underflow", c.underflow},
                  {"saturated", c.saturated}};
        if (c.least_scale != c.largest_scale) tensor["least_scale"] = finite_or_null(c.least_scale);
    }
    return json;
}

Json metrics_of(const StepResult& s) {
    Json line = {{"step", s.step}, {"loss", finite_or_null(s.loss)}};
    if (!std::isfinite(s.loss)) line["loss_class"] = std::isnan(s.loss) ? "nan" : "inf";
    line.update(
        {{"scale", s.scale},
         {"found_inf", s.found_inf},
         {"skipped", s.verdict != ScalerVerdict::step},
         {"grad_norm", finite_or_null(s.gradient_norm)},
         {"lr", s.learning_rate},
         {"amax",
          {{name_of(TensorKind::weight_gradient), s.amax_weight},
           {name_of(TensorKind::activation_gradient), s.amax_activation}}},
         {"updates", {{"lost", s.updates.lost}, {"changed", s.updates.changed}, {"nonfinite", s.updates.nonfinite}}}});
    return line;
}

} // namespace amp
