// Recordings: files and folders expanded to a list of tensors with step, kind and loss scale.
#pragma once

#include <ampscope/sim/io/tensor_file.h>

#include <array>
#include <initializer_list>
#include <string_view>

namespace amp {

/// What a recorded tensor is. They differ in range by orders of magnitude, and only gradients contain a loss scale.
/// `state` is what an optimizer keeps beside the weights, such as Adam's moments.
enum class TensorKind : std::uint8_t { weight, weight_gradient, activation, activation_gradient, state };
inline constexpr std::array<std::string_view, 5> tensor_kind_names = {"weight", "weight_gradient", "activation",
                                                                      "activation_gradient", "state"};
std::string_view name_of(TensorKind kind);

/// A set of kinds.
class KindSet {
  public:
    constexpr KindSet(std::initializer_list<TensorKind> kinds) {
        for (const TensorKind kind : kinds) bits_ |= bit(kind);
    }
    [[nodiscard]] constexpr bool has(TensorKind kind) const { return (bits_ & bit(kind)) != 0; }
    [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
    [[nodiscard]] constexpr KindSet without(KindSet other) const {
        other.bits_ = bits_ & ~other.bits_;
        return other;
    }
    /// Whether all of these kinds are in the other set.
    [[nodiscard]] constexpr bool within(KindSet other) const { return (bits_ & ~other.bits_) == 0; }
    constexpr KindSet& operator|=(KindSet other) {
        bits_ |= other.bits_;
        return *this;
    }
    friend constexpr KindSet operator&(KindSet a, KindSet b) {
        a.bits_ &= b.bits_;
        return a;
    }
    constexpr bool operator==(const KindSet&) const = default;

  private:
    static constexpr std::uint32_t bit(TensorKind kind) { return 1U << static_cast<unsigned>(kind); }
    std::uint32_t bits_ = 0;
};
/// The names of the kinds, joined by ", ".
std::string names_of(KindSet kinds);

inline constexpr KindSet gradient_kinds = {TensorKind::weight_gradient, TensorKind::activation_gradient};
inline constexpr KindSet every_kind = {TensorKind::weight, TensorKind::weight_gradient, TensorKind::activation,
                                       TensorKind::activation_gradient, TensorKind::state};
constexpr bool is_gradient(TensorKind kind) { return gradient_kinds.has(kind); }

/// Kinds that are judged together: gradients, since one loss scale multiplies all of them, and each other kind by
/// itself.
struct KindGroup {
    std::string_view name, noun; ///< "weights"; what elements are called in sentences
    KindSet kinds;
};
inline constexpr std::array kind_groups = {
    KindGroup{"gradients", "gradients", gradient_kinds},
    KindGroup{"weights", "weights", {TensorKind::weight}},
    KindGroup{"activations", "activations", {TensorKind::activation}},
    KindGroup{"state", "numbers of state", {TensorKind::state}},
};
/// The group of a kind.
const KindGroup& group_of(TensorKind kind);

/// The kind that a file of a schema version calls `name`. In version 1, which recorded only gradients, "weight" and
/// "activation" are the gradients of these. Throws std::invalid_argument for a name that is not in the table.
TensorKind parse_kind(std::string_view name, std::int64_t schema_version);

struct RecordedTensor {
    std::filesystem::path file{};
    std::size_t index = 0; ///< index of the tensor in its file
    TensorEntry entry{};
    std::string layer{}; ///< name without its parameter suffix: "h.0" for "h.0.weight.grad"
    std::optional<std::int64_t> step{};
    TensorKind kind = TensorKind::weight_gradient;
    double recorded_scale = 1; ///< loss scale by which the stored values are still multiplied; 1 unless a gradient
    bool scale_stated = true;  ///< by the file; false for gradients of which nothing says under which scale they are
    bool random_access = true; ///< whether its parts can be read by themselves (not of a compressed archive)
    std::string backward{};    ///< format in which the run's backward computes gradients; empty: not known
};

/// The histograms.jsonl of a run folder.
struct RecordedLog {
    std::filesystem::path file{};
    /// Ranks were merged: the files hold what all of them have in common, and the log has the other kinds of the same
    /// steps. Files of other runs are complete, but for groups of kinds that they lack.
    bool merged = false;
    KindSet in_files{}; ///< kinds of which the run has tensors in files, as far as there are any
};

struct Recording {
    std::vector<RecordedTensor> tensors;
    std::vector<RecordedLog> logs{};   ///< filled only if FindOptions::logs
    std::vector<std::string> errors;   ///< one line for each file and folder that could not be read
    std::vector<std::string> warnings; ///< lines about duplicates left out and entries skipped
    KindSet unread{};                  ///< kinds in the state/ of runs, where that was not read
};

/// What find_tensors() lists.
struct FindOptions {
    bool state = false; ///< whether to list the weights and optimizer's state in state/ of run folders, too
    /// Whether to list the histograms.jsonl of run folders, too; a folder without tensors is then no error.
    bool logs = false;
    TensorKind unstated = TensorKind::weight_gradient; ///< kind of tensors that neither file nor name tells
    bool by_name = false; ///< tensors are then selected by name: no warning of those in a file in two forms
    /// Whether to list replicas/ of run folders, where it is there, in place of gradients/.
    bool replicas = false;
    bool repeats = false; ///< whether to list a tensor again that has the bytes of one in another file
    std::optional<double> recorded_scale{}; ///< loss scale of all gradients, whatever their files state
};

/// Expands paths to tensors; folders recursively. Files are read in the order of their paths, however they are given,
/// so that sums over them do not depend on that. Of a run folder (one with run.json) only gradients/ is read, and
/// state/ if asked for, and run.json says in which format backward computes; raw files (.bin, .raw) in folders are read
/// only if options.dtype is given.
/// Step: metadata "step", else the number that ends the file's name (step_000100, grads-7). Kind: metadata "kinds" (a
/// JSON object: tensor -> a name of tensor_kind_names), which is read as of the version in metadata "schema_version",
/// or of version 1 without it. Without that, in state/ of a run folder, names that end in .m, .v, .row_var, .col_var,
/// .compensation, .delayed_scale or .amax_history are of state, the others weights; elsewhere names that end in
/// .out.grad are of activation gradients, others in .grad of weight gradients, those of a checkpoint's optimizer
/// (optimizer_state.h) of state, all others in its file of weights, and those in other files of the kind `unstated`.
/// Scale of gradients: find.recorded_scale, else metadata "loss_scale", else 1; of other kinds: 1. Of files of
/// TransformerEngine's DumpTensors, the path says step, kind, layer and rank, and a tensor is named
/// "rank_0.LAYER_TENSOR.high_precision" (dump_path.h).
/// Tensors of the same name, step and bytes are listed once, with a warning, from a file that states the scale if there
/// is one, unless find.repeats; under two different stated scales both are listed, and so are single numbers of an
/// optimizer's state, such as its steps, which many checkpoints have in common. Files that cannot be read become
/// errors; the rest is still listed.
Recording find_tensors(const std::vector<std::filesystem::path>& paths, const OpenOptions& options = {},
                       const FindOptions& find = {});

/// Nothing could be read: has a line for each file; what() is the first.
class RecordingError : public std::runtime_error {
  public:
    explicit RecordingError(std::vector<std::string> lines);
    [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }

  private:
    std::vector<std::string> lines_;
};

/// "h.0.weight.grad" -> "h.0", "c1.out.grad" -> "c1".
std::string layer_of(std::string_view tensor);

} // namespace amp
