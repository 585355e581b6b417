// The folder of a run: its configuration, what happened, and the checkpoints from which it can be resumed.
//
//     run.json               configuration, formats, shapes of the parameters (schema_version first)
//     metrics.jsonl          an object a step
//     histograms.jsonl       exact histogram states of the recorded tensors
//     gradients/step_000100.safetensors   tensors as they were in the step, with their kinds and the loss scale that
//                            gradients contain in the metadata: gradients, and if asked for activations and weights
//     replicas/step_000100.safetensors    optional: the gradients of each replica, of which those above are the mean
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

/// A text file that lines are appended to, and that can be cut back to an earlier length. Throws FileError.
class LineFile {
  public:
    LineFile(std::filesystem::path path, std::uint64_t keep);
    ~LineFile();
    LineFile(LineFile&& other) noexcept;
    LineFile& operator=(LineFile&&) = delete;
    /// Appends the whole line; if it throws, nothing of it.
    void append(const nlohmann::ordered_json& line);
    /// Returns when all lines are on the disk; the result is the length in bytes.
    std::uint64_t sync();

  private:
    explicit LineFile(std::filesystem::path path);

    std::filesystem::path path_;
    int descriptor_ = -1;
    std::uint64_t length_ = 0;
};

/// A checkpoint read from disk, found complete and of the right step.
struct Checkpoint {
    std::unique_ptr<TensorFile> file;
    nlohmann::ordered_json state;
};

/// The folder of one run while it is recorded. Nothing in it changes before begin(), so several runs can all be checked
/// before the first is written.
class RunFolder {
  public:
    /// Locks the folder and checks that a run with that configuration can be recorded in it: a new one or, with
    /// `resume`, also the one that was begun there. Throws FileError if not: if a program records into it, if it holds
    /// a run already or parts of another one, or if its configuration differs, saying where.
    RunFolder(std::filesystem::path path, const nlohmann::ordered_json& configuration, bool resume);

    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    /// A warning about the folder for the user; may be empty.
    [[nodiscard]] const std::string& warning() const { return lock_->warning(); }
    /// Whether the folder holds this run, and whether lines of it were logged.
    [[nodiscard]] bool begun() const { return begun_; }
    [[nodiscard]] bool holds_steps() const;
    /// The number of whole lines in metrics.jsonl, which is read to count them. Throws FileError.
    [[nodiscard]] std::int64_t logged_steps() const;
    /// Whether a run has ended here and left its result.
    [[nodiscard]] bool ended() const;
    /// The steps of a folder's checkpoints, ascending; empty if there is no folder.
    static std::vector<std::int64_t> checkpoints(const std::filesystem::path& path);
    /// Throws FileError if the checkpoint is damaged or of another step than its name says.
    static Checkpoint open_checkpoint(const std::filesystem::path& path, std::int64_t step);
    /// Restores the trainer from checkpoint `step`, from which begin() then continues, and calls read(notes). Throws
    /// FileError if the checkpoint is damaged or of another run, or if the logs have lost lines from before it; and
    /// what read() throws.
    void restore(Trainer& trainer, std::int64_t step,
                 const std::function<void(const nlohmann::ordered_json& notes)>& read);
    /// Prepares the folder for the next step: removes what was recorded after the restored checkpoint (without
    /// restore(): everything) and unfinished files. To be called before the functions below. Throws FileError.
    void begin();

    void append_metrics(const nlohmann::ordered_json& line) { metrics_->append(line); }
    /// Records the gradients of a step; with `activations` also the outputs of layers, whose gradients are among them,
    /// and the weights; with `state` weights and optimizer in a file of their own, which then has the weights alone.
    /// To be called between compute() and apply().
    void record_tensors(const Trainer& trainer, const StepResult& step, bool activations, bool state);
    /// Records the gradients that each replica has computed of weights, before they are reduced.
    void record_replicas(const Trainer& trainer, const StepResult& step);
    /// Writes the state before `step`, atomically, with `notes` for restore(). Checkpoints before step `oldest` are
    /// removed.
    void checkpoint(const Trainer& trainer, const nlohmann::ordered_json& notes, std::int64_t step,
                    std::int64_t oldest);
    /// Writes the result, atomically; replaces an earlier one.
    void write_result(const nlohmann::ordered_json& result) const;

  private:
    void record_state(const Trainer& trainer);
    void remove_checkpoints_before(std::int64_t oldest) const;

    std::filesystem::path path_;
    std::unique_ptr<FolderLock> lock_;
    nlohmann::ordered_json configuration_;
    bool begun_ = false;
    std::int64_t step_ = 0;                                  ///< the step from which begin() continues
    std::uint64_t metrics_bytes_ = 0, histograms_bytes_ = 0; ///< lengths to which begin() cuts the logs
    std::optional<LineFile> metrics_, histograms_;
};

/// Removes files that killed programs left unfinished in the folder of a run; the caller must hold its lock.
void remove_partial_files(const std::filesystem::path& run);

/// A step as a line of metrics.jsonl.
nlohmann::ordered_json metrics_of(const StepResult& step);
/// The entry "scaling" of that line: what each cast with a scale did in the step, by tensor; null without such casts.
nlohmann::ordered_json scalings_of(const Backend& backend);

} // namespace amp
