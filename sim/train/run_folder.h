// The folder of a run: what it was, what happened, and what it can go on from.
//
//     run.json               configuration, formats, shapes of the parameters (schema_version first)
//     metrics.jsonl          an object a step
//     histograms.jsonl       exact histogram states of the recorded gradients
//     gradients/step_000100.safetensors   gradients as they were in the step, with the loss scale of the metadata
//     state/step_000100.safetensors       optional: parameters and optimizer before the step
//     checkpoints/step_000100.safetensors the same before step 100, with how long the files above were; sealed, and of
//                            the step and the configuration that they say
//     result.json            what came of it, once it has ended
//     .lock                  while a program records into the folder
#pragma once

#include <ampscope/sim/io/folder_lock.h>
#include <ampscope/sim/io/tensor_file.h>
#include <ampscope/sim/train/trainer.h>

#include <nlohmann/json.hpp>

#include <functional>
#include <memory>
#include <optional>

namespace amp {

/// A text file that grows by lines, and can be cut back to a length that it had. Throws FileError.
class LineFile {
  public:
    LineFile(std::filesystem::path path, std::uint64_t keep);
    ~LineFile();
    LineFile(LineFile&& other) noexcept;
    LineFile& operator=(LineFile&&) = delete;
    /// The whole line, or, where it throws, nothing of it.
    void append(const nlohmann::ordered_json& line);
    /// On the disk when this returns. The length in bytes.
    std::uint64_t sync();

  private:
    explicit LineFile(std::filesystem::path path);

    std::filesystem::path path_;
    int descriptor_ = -1;
    std::uint64_t length_ = 0;
};

/// A checkpoint as it lies on the disk, whole and of its step.
struct Checkpoint {
    std::unique_ptr<TensorFile> file;
    nlohmann::ordered_json state;
};

/// The folder of one run, while it is recorded. Nothing in it changes before begin(): what several runs need is checked
/// for all of them before the first is written.
class RunFolder {
  public:
    /// Takes hold of the folder and looks whether a run of that configuration can be recorded in it: a new one, or,
    /// with `resume`, also the one that was begun there. Throws FileError if it cannot: a program records into it, it
    /// holds a run already or parts of another's, or its configuration differs, naming what.
    RunFolder(std::filesystem::path path, const nlohmann::ordered_json& configuration, bool resume);

    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    /// What the user should be told of the folder; empty: nothing.
    [[nodiscard]] const std::string& warning() const { return lock_->warning(); }
    /// Whether the folder holds this run, and lines of it.
    [[nodiscard]] bool begun() const { return begun_; }
    [[nodiscard]] bool holds_steps() const;
    /// The whole lines of metrics.jsonl, which is read for that. Throws FileError.
    [[nodiscard]] std::int64_t logged_steps() const;
    /// Whether a run has ended here, and left its result.
    [[nodiscard]] bool ended() const;
    /// Steps that a folder has checkpoints of, ascending; empty for no folder.
    static std::vector<std::int64_t> checkpoints(const std::filesystem::path& path);
    /// Throws FileError for a checkpoint that is damaged, or of another step than its name says.
    static Checkpoint open_checkpoint(const std::filesystem::path& path, std::int64_t step);
    /// Puts the trainer where checkpoint `step` was, from which begin() then goes on, and calls read(notes). Throws
    /// FileError for a damaged one, or one of another run, if the logs have lost lines that it counts on, and for
    /// whatever read() throws.
    void restore(Trainer& trainer, std::int64_t step,
                 const std::function<void(const nlohmann::ordered_json& notes)>& read);
    /// Makes the folder ready for the next step: cuts and removes what was recorded after the checkpoint (without
    /// restore(): everything) and removes its unfinished files. Comes before all that follows. Throws FileError.
    void begin();

    void append_metrics(const nlohmann::ordered_json& line) { metrics_->append(line); }
    /// Between compute() and apply().
    void record_gradients(const Trainer& trainer, const StepResult& step);
    void record_state(const Trainer& trainer);
    /// Where the run is before `step`; atomic. restore() reads `notes` again. Checkpoints before `oldest` are
    /// removed.
    void checkpoint(const Trainer& trainer, const nlohmann::ordered_json& notes, std::int64_t step,
                    std::int64_t oldest);
    /// Atomic; replaces what an earlier end left.
    void write_result(const nlohmann::ordered_json& result) const;

  private:
    void remove_checkpoints_before(std::int64_t oldest) const;

    std::filesystem::path path_;
    std::unique_ptr<FolderLock> lock_;
    nlohmann::ordered_json configuration_;
    bool begun_ = false;
    std::int64_t step_ = 0;                                  ///< from which begin() goes on
    std::uint64_t metrics_bytes_ = 0, histograms_bytes_ = 0; ///< that begin() keeps
    std::optional<LineFile> metrics_, histograms_;
};

/// Removes what programs that were killed were writing in the folder of a run; whoever calls holds its lock.
void remove_partial_files(const std::filesystem::path& run);

/// An object of metrics.jsonl.
nlohmann::ordered_json metrics_of(const StepResult& step);
/// Its "scaling": what every cast with scales of the step did, by tensor; null where nothing is scaled.
nlohmann::ordered_json scalings_of(const Backend& backend);

} // namespace amp
