// Builds a Program: the ops that a model calls, the casts that the precision asks for, and the ops of all gradients.
//
//     Program program;
//     Graph g(program, precision("amp-fp16"));
//     const TensorId x = g.input("x", {64, 10}), w = g.parameter("weight", {1, 10}, uniform(0.3));
//     const TensorId loss = mse_loss(g, linear(g, x, w, {}), target);
//     g.differentiate(loss);                       // fills program.backward
//     g.gradient(w)                                // a tensor of w's format
#pragma once

#include <ampscope/sim/program/ops.h>
#include <ampscope/sim/program/precision.h>

#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace amp {

/// How a parameter is initialised: with the constant `value`, uniformly in [-value, value), or normally with standard
/// deviation `value`.
struct Init {
    enum class Kind : std::uint8_t { constant, uniform, normal } kind = Kind::constant;
    double value = 0;
};

/// A parameter, or a buffer.
struct Parameter {
    TensorId weight;
    Init init;
};

/// The tensors of delayed scaling for one tensor.
struct DelayedScale {
    TensorId scale, history;
    op::DelayedRule rule;
    bool most_recent = false, reduces_amax = true; ///< as in the layer's ScalingRecipe
    std::string_view recipe{};                     ///< its name
};

class Graph {
  public:
    Graph(Program& program, Precision precision) : program_(program), precision_(std::move(precision)) {}
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;

    // Called by models.

    /// While the result lives, names of new tensors begin with `name` and a dot, after those of enclosing scopes.
    class Scope {
      public:
        Scope(Graph& graph, std::string_view name);
        ~Scope() { graph_.scope_.resize(length_); }
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;

      private:
        Graph& graph_;
        std::size_t length_;
    };
    [[nodiscard]] Scope scope(std::string_view name) { return {*this, name}; }
    TensorId input(std::string_view name, Shape shape);
    TensorId parameter(std::string_view name, Shape shape, Init init);
    /// A tensor in FP32 that ops of forward change and that belongs to the state of a training: running statistics.
    TensorId buffer(std::string_view name, Shape shape, Init init);
    /// A tensor of a caller that computes the rest of the network itself: a weight, or else an activation.
    TensorId given(std::string_view name, Shape shape, const FormatSpec& format, bool weight, bool needs_gradient);
    /// Asks for this activation to be recorded, as NAME.out, and for its gradient, as NAME.out.grad, unless that is the
    /// gradient of another watched one.
    void watch(TensorId activation, std::string_view name, bool with_gradient = true);
    /// Appends to the backward tape the gradients of a scalar with respect to all parameters that it depends on.
    void differentiate(TensorId loss);
    /// The same for the result of such a caller's op: returns the tensor into which it puts the result's gradient.
    TensorId differentiate_from(TensorId result);

    [[nodiscard]] const Precision& precision() const { return precision_; }
    [[nodiscard]] const TensorInfo& operator[](TensorId id) const { return std::as_const(program_)[id]; }
    [[nodiscard]] const std::vector<Parameter>& parameters() const { return parameters_; }
    [[nodiscard]] const std::vector<Parameter>& buffers() const { return buffers_; }
    struct Watched {
        std::string name;
        TensorId activation;
        bool with_gradient;
    };
    [[nodiscard]] const std::vector<Watched>& watched() const { return watched_; }
    /// The gradient of a tensor; no tensor if nothing contributed to it.
    [[nodiscard]] TensorId gradient(TensorId of) const;

    // Called by ops.

    /// The operands of a call, cast as the precision asks for, and the format of its result.
    struct Plan {
        std::vector<TensorId> operands;
        FormatSpec output;
        std::string rule;
    };
    Plan plan(std::string_view op, std::vector<TensorId> operands);
    /// The arithmetic of the layer in the current scope; in backward, of the layer whose gradient is computed.
    [[nodiscard]] const LayerArithmetic& arithmetic();
    /// The arithmetic for a matrix product of these tensors.
    [[nodiscard]] op::MatmulArithmetic product(TensorId a, TensorId b) {
        return arithmetic().product((*this)[a].format, (*this)[b].format, differentiating_);
    }
    /// A new tensor for a result, named after the op.
    TensorId result(std::string_view op, Shape shape, const FormatSpec& format,
                    TensorRole role = TensorRole::activation);
    void append(Op op, std::string rule);
    /// x in that format: x itself, or the result of a Cast.
    TensorId cast(TensorId x, const FormatSpec& format, std::string rule);
    /// x under another shape with the same number of elements; a view, not a copy.
    TensorId append_view(TensorId x, Shape shape);
    [[nodiscard]] bool needs_gradient(TensorId x) const { return x && (*this)[x].needs_gradient; }
    /// A new tensor of x's shape for a contribution to x's gradient; no tensor if x needs no gradient.
    TensorId new_gradient(TensorId x);
    /// Adds a contribution to the gradient of x. It has the shape of x, or a view of that shape is made.
    void contribute(TensorId x, TensorId contribution);
    /// Keeps the gradient of x in FP32: it consists of sums that are rounded later.
    void keep_gradient_wide(TensorId x) { wide_gradients_.insert(x.index); }
    [[nodiscard]] FormatSpec gradient_format(TensorId x) const;
    std::uint32_t next_stream() { return stream_++; }

    /// A tensor as the operand of a scaled product.
    struct Scaled {
        TensorId tensor;
        op::OperandScale scale{};
    };
    /// Casts `source` to the format and scales of the layer's recipe, for a product that sums over its rows if
    /// `sums_rows`, else over its columns.
    Scaled scaled(TensorId source, OperandRole role, bool sums_rows);
    /// What the cast that forward makes of `source` is read as, in that format.
    TensorId restored(TensorId source, OperandRole role, const FormatSpec& format);
    /// The tensor that a scaled operand was made from.
    struct ScaledSource {
        TensorId tensor;
        OperandRole role;
    };
    [[nodiscard]] const ScaledSource& source_of(TensorId scaled) const { return scaled_sources_.at(scaled.index); }
    [[nodiscard]] bool scales_here() { return arithmetic().scaling.has_value(); }
    /// x cast with scales and back to its own format, as if it had been stored narrow; x itself if `narrow` is empty.
    /// Not differentiable.
    TensorId through(const std::optional<OperandScaling>& narrow, TensorId x);
    /// Whether a layer in the current scope is served in the formats of Precision::serving.
    [[nodiscard]] bool serves_here() { return !arithmetic().keeps_wide; }
    [[nodiscard]] const std::vector<DelayedScale>& delayed_scales() const { return delayed_scales_; }

  private:
    TensorId add_tensor(std::string name, Shape shape, const FormatSpec& format, TensorRole role);
    /// That of the op that is appended; in backward, of the op whose gradient is computed.
    [[nodiscard]] const std::string& scope() const;
    std::uint32_t stream_of(OperandRole role, const BlockScaling& blocks);
    void append_gradients();
    /// `recipe`: the one that delays the scale, if any does.
    op::Quantize append_cast(TensorId source, OperandRole role, const OperandScaling& operand,
                             const BlockScaling& blocks, const ScalingRecipe* recipe);
    Scaled scaled(TensorId source, OperandRole role, bool sums_rows, bool in_backward);
    TensorId rotated(TensorId x, const Rotation& rotation, bool along_columns);
    Plan plan_uniform(std::string_view op, std::vector<TensorId> operands);

    Program& program_;
    Precision precision_;
    std::string scope_;
    bool differentiating_ = false;
    std::vector<std::string> forward_scopes_;            // of forward's ops
    std::size_t differentiated_ = 0;                     // the op of forward whose gradient is computed
    std::map<std::string, LayerArithmetic> arithmetics_; // by scope
    std::vector<ScalingRecipe> recipes_;                 // all that differ
    std::uint32_t stream_ = 1;
    std::map<std::string, int> streams_; // of stochastic casts, by name: how many there are
    std::vector<Parameter> parameters_, buffers_;
    std::vector<Watched> watched_;
    std::map<std::string, int> names_;
    std::map<std::pair<int, std::string>, TensorId> weight_casts_;
    std::map<int, TensorId> gradients_;
    std::set<int> wide_gradients_;
    /// What distinguishes the casts of a tensor.
    struct CastKey {
        std::ptrdiff_t recipe;
        BlockScaling blocks;
        bool again, rotates;
        bool operator==(const CastKey&) const = default;
    };
    std::map<int, std::vector<std::pair<CastKey, Scaled>>> scaled_; // by source
    std::map<int, ScaledSource> scaled_sources_;
    std::vector<DelayedScale> delayed_scales_;
};

/// Throws std::invalid_argument "[op] expected ..., got SHAPE, SHAPE ...".
[[noreturn]] void shape_error(std::string_view op, std::string_view expected, const Graph& g,
                              std::initializer_list<TensorId> got);

} // namespace amp
