// The folder of a run: what it was, what happened, and what it can go on from.
//
//     run.json               configuration, formats, shapes of the parameters (schema_version first)
//     metrics.jsonl          an object a step
//     histograms.jsonl       exact histogram states of the recorded gradients
//     gradients/step_000100.safetensors   gradients as they were in the step: they contain the loss scale of the
// metadata
//     state/step_000100.safetensors       optional: parameters and optimizer before the step
//     checkpoints/step_000100.safetensors the same before step 100, with how long the files above were
//     result.json            what came of it, once it has ended
#pragma once

#include <ampscope/sim/io/tensor_file.h>
#include <ampscope/sim/trainer.h>

#include <nlohmann/json.hpp>

namespace amp {

/// A text file that grows by lines, and can be cut back to a length that it had. Throws FileError.
class LineFile {
  public:
    LineFile(std::filesystem::path path, std::uint64_t keep);
    ~LineFile();
    LineFile(LineFile&& other) noexcept;
    LineFile& operator=(LineFile&&) = delete;
    void append(const nlohmann::ordered_json& line);
    /// On the disk when this returns. The length in bytes.
    std::uint64_t sync();

  private:
    std::filesystem::path path_;
    int descriptor_ = -1;
    std::uint64_t length_ = 0;
};

class RunFolder {
  public:
    /// A new folder; throws FileError if it holds a run already or cannot be written.
    static RunFolder create(const std::filesystem::path& path, const nlohmann::ordered_json& configuration);
    /// An interrupted run of the same configuration, cut back to the checkpoint of `step` (0: the beginning). Throws
    /// FileError where the configuration differs, naming what.
    static RunFolder reopen(const std::filesystem::path& path, const nlohmann::ordered_json& configuration,
                            std::int64_t step);
    /// Steps that a folder has checkpoints of, ascending; empty for no folder.
    static std::vector<std::int64_t> checkpoints(const std::filesystem::path& path);

    void append_metrics(const nlohmann::ordered_json& line) { metrics_.append(line); }
    /// Between compute() and apply().
    void record_gradients(const Trainer& trainer, const StepResult& step);
    void record_state(const Trainer& trainer);
    /// Where the run is before `step`; atomic. `notes` come back from restore(). Checkpoints before `oldest` are
    /// removed.
    void checkpoint(const Trainer& trainer, const nlohmann::ordered_json& notes, std::int64_t step,
                    std::int64_t oldest);
    /// Atomic; replaces what an earlier end left.
    void write_result(const nlohmann::ordered_json& result) const;
    /// Puts the trainer where checkpoint `step` was. Returns its notes. Throws FileError.
    nlohmann::ordered_json restore(Trainer& trainer, std::int64_t step) const;

  private:
    RunFolder(std::filesystem::path path, std::uint64_t metrics, std::uint64_t histograms);
    void write_tensors(const std::filesystem::path& file, const Trainer& trainer,
                       const std::vector<std::pair<std::string, TensorId>>& tensors,
                       const std::map<std::string, std::string>& metadata, bool as_floats) const;

    std::filesystem::path path_;
    LineFile metrics_, histograms_;
};

/// An object of metrics.jsonl.
nlohmann::ordered_json metrics_of(const StepResult& step);
/// Its "scaling": what every cast with scales of the step did, by tensor; null where nothing is scaled.
nlohmann::ordered_json scalings_of(const Backend& backend);

} // namespace amp
