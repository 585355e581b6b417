// Builds the cases of op_cases.h.
#pragma once

#include <ampscope/tools/amp-crosscheck/op_cases.h>

#include <fmt/format.h>
#include <utility>

namespace amp::crosscheck_tool {

inline constexpr std::string_view formats_of_tensors[] = {"fp32", "tf32", "fp16", "bf16", "e4m3", "e5m2"};

/// Builds a program of one op.
class OpCaseBuilder {
  public:
    explicit OpCaseBuilder(std::string name) { case_.name = std::move(name); }

    TensorId tensor(Shape shape, std::string_view f, Fill fill = Fill::zero) {
        const auto index = static_cast<std::int32_t>(case_.program.tensors.size());
        case_.program.tensors.push_back(
            {.name = fmt::format("tensor {}", index), .shape = std::move(shape), .format = format(f)});
        if (fill != Fill::zero) case_.operands.push_back({{index}, fill});
        return {index};
    }
    /// Adds a tensor that is kept under scales, as scaled_format() reads them.
    TensorId scaled_tensor(Shape shape, std::string_view f, Fill fill, bool has_negatives = true) {
        const TensorId id = tensor(std::move(shape), "fp32", fill);
        case_.program[id].scaled_as = scaled_format(f, has_negatives);
        return id;
    }
    StepContext& context() { return case_.context; }
    void limit(std::int64_t value) { case_.limit = value; }
    OpCase build(Op op) {
        case_.context.seed = 7;
        case_.context.step = 3;
        case_.program.forward.push_back({std::move(op), ""});
        return std::move(case_);
    }

  private:
    OpCase case_;
};

using Cases = std::vector<OpCase>;

// op_cases.cpp
void elementwise_cases(Cases& cases);
void activation_cases(Cases& cases);
void row_cases(Cases& cases);
void image_cases(Cases& cases);
void move_cases(Cases& cases);
void sum_cases(Cases& cases);
void loss_cases(Cases& cases);
// op_cases_attention.cpp
void attention_cases(Cases& cases);
// op_cases_training.cpp
void gradient_cases(Cases& cases);
void orthogonal_cases(Cases& cases);
void second_moment_cases(Cases& cases);
void update_cases(Cases& cases);
void scaled_update_cases(Cases& cases);
void block_state_cases(Cases& cases);
void block_cast_cases(Cases& cases);
void delayed_cast_cases(Cases& cases);
void hadamard_cases(Cases& cases);
void product_cases(Cases& cases);
void scaled_product_cases(Cases& cases);

} // namespace amp::crosscheck_tool
