// One training step of a model in several precisions beside FP32's, module by module: what each module adds to the
// error by itself, what it inherits, and which modules to keep in higher precision. ampscope.torch.compare measures it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace amp {

/// How far tensors are from FP32's: |x - x32| / |x32|, over the elements that are finite in both.
struct RelativeError {
    std::optional<double> relative{};          ///< none: FP32's are zero, and these are not
    std::uint64_t elements = 0, nonfinite = 0; ///< all elements; those that are NaN or infinite where FP32's are not

    [[nodiscard]] bool operator==(const RelativeError&) const = default;
};

/// What became of elements that were cast.
struct StepCasts {
    std::uint64_t nonzero = 0;   ///< elements finite and not zero before
    std::uint64_t underflow = 0; ///< those of them that became zero
    std::uint64_t saturated = 0; ///< those of them beyond the largest value of the format

    [[nodiscard]] bool operator==(const StepCasts&) const = default;
};

/// A module that computes something itself.
struct StepModule {
    std::string name, type; ///< "h.0.mlp.up" and "Linear"; the name of the model itself is empty
    std::uint64_t calls = 0, parameters = 0;
};

/// A module in one precision; errors that are not known are none. In the step it inherits errors of its inputs, and of
/// the gradient that comes back to it. Its own errors are those that it adds by itself, with both as FP32 has them. Its
/// effect is what these make of the whole model's gradient.
struct ModuleErrors {
    std::optional<RelativeError> output{}, output_gradient{}, weight_gradient{};
    std::optional<RelativeError> own_output{}, own_input_gradient{}, own_weight_gradient{};
    std::optional<RelativeError>
        effect{}; ///< the error of all weights' gradients with only this module in the precision
    /// By what is cast: "input", "weight" and "gradient" of a layer that is cast with scales; "output" and
    /// "output_gradient" in half precision.
    std::map<std::string, StepCasts> casts{};

    /// The own errors together: the root of the sum of their squares. 0 if none is known, infinite if an element is NaN
    /// or infinite that is finite in FP32.
    [[nodiscard]] double own() const;
    [[nodiscard]] bool is_scaled() const;          ///< whether it is cast with scales
    [[nodiscard]] StepCasts all_casts() const;     ///< those with scales, if there are any
    [[nodiscard]] std::uint64_t nonfinite() const; ///< the most elements that are NaN or infinite in one of the tensors
};

/// A module's place among those that add errors.
struct RankedModule {
    std::size_t module = 0; ///< its index
    double error = 0;       ///< its effect, or own() where effects were not measured; infinite as there
    double share = 0;       ///< part of the sum of all squares of these
    bool stands_out = false;
};

/// The step once more, with the modules that stand out not cast with scales.
struct KeptStep {
    std::vector<std::string> modules;
    RelativeError gradient;
};

/// The step in one precision.
struct PrecisionStep {
    std::string precision;
    std::optional<double> loss{}; ///< none: infinite or NaN
    double loss_scale = 1;
    std::uint64_t steps = 1; ///< the step was repeated so often until scales had settled, or gradients were finite
    RelativeError gradient;  ///< the error of all weights together
    std::vector<ModuleErrors> modules; ///< one for each of StepComparison::modules
    std::optional<KeptStep> kept{};

    bool by_effect = false;              ///< whether modules are ranked by their effects; else by own()
    std::vector<RankedModule> ranking{}; ///< modules that add errors, the largest error first
    double median = 0;                   ///< the error of the middle one of those that can stand out
    std::string verdict{}; ///< what it does to the gradient, and which modules to keep in higher precision
};

struct StepComparison {
    std::string model;               ///< the name of its class
    std::optional<double> loss{};    ///< in FP32
    std::vector<StepModule> modules; ///< in the order of their first calls
    std::vector<PrecisionStep> precisions;
    std::vector<std::string> warnings{}; ///< what is not known, and why

    /// The names of the modules that stand out in that precision, the largest error first.
    [[nodiscard]] std::vector<std::string> standing_out(const PrecisionStep& step) const;
};

/// A module stands out if its error is more than twice the median and makes up at least a twentieth of the sum of
/// squares. The median is of the modules that are cast with scales, where there are several, else of all that add an
/// error of at least 1e-5: those of another kind are as FP32 has them.
inline constexpr double outstanding = 2, outstanding_share = 0.05, least_error = 1e-5;

/// A relative error as people read it: "8.1 %"; "infinite" for what is no number.
std::string error_text(double error);

/// "h.0.mlp.up", or "(model)" for the model itself.
std::string shown_name(const std::string& module);

/// Whether the file begins as one that ampscope.torch.compare saved; false for what cannot be read.
bool is_step_comparison(const std::filesystem::path& file);

/// Reads the document, which may come from anywhere, and judges it. Throws FileError "FILE: PLACE: what is wrong".
StepComparison step_comparison_of(const nlohmann::ordered_json& document, const std::filesystem::path& file);
StepComparison read_step_comparison(const std::filesystem::path& file);

/// The document that is read, with rankings and verdicts.
nlohmann::ordered_json json_of(const StepComparison& comparison);

} // namespace amp
