#include <ampscope/sim/program/autocast.h>

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <iterator>
#include <stdexcept>
#include <string>

namespace amp {

namespace {

using enum AutocastClass;

// The classes on cuda, cpu, mps and xpu; whether operands of different formats are promoted where nothing casts them
// (true unless said otherwise); whether the op takes a dtype.
constexpr AutocastRow autocast_table[] = {
    {"addbmm", lower_precision, lower_precision, lower_precision, lower_precision, false},
    {"addmm", lower_precision, lower_precision, lower_precision, lower_precision, false},
    {"baddbmm", lower_precision, lower_precision, lower_precision, lower_precision, false},
    {"bmm", lower_precision, lower_precision, lower_precision, lower_precision, false},
    {"chain_matmul", lower_precision, lower_precision, lower_precision, lower_precision, false},
    {"conv1d", lower_precision, lower_precision, lower_precision, lower_precision, false},
    {"conv2d", lower_precision, lower_precision, lower_precision, lower_precision, false},
    {"conv3d", lower_precision, lower_precision, lower_precision, lower_precision, false},
    {"conv_tbc", lower_precision, lower_precision, lower_precision, lower_precision, false},
    {"conv_transpose1d", lower_precision, lower_precision, lower_precision, lower_precision, false},
    {"conv_transpose2d", lower_precision, lower_precision, lower_precision, lower_precision, false},
    {"_convolution", lower_precision, lower_precision, lower_precision, lower_precision, false},
    {"einsum", lower_precision, lower_precision, lower_precision, lower_precision, false},
    {"linalg_multi_dot", lower_precision, lower_precision, lower_precision, lower_precision, false},
    {"linear", lower_precision, lower_precision, lower_precision, lower_precision, false},
    {"matmul", lower_precision, lower_precision, lower_precision, lower_precision, false},
    {"mm", lower_precision, lower_precision, lower_precision, lower_precision, false},
    {"prelu", lower_precision, lower_precision, lower_precision, lower_precision, false},
    {"rnn_relu_cell", lower_precision, lower_precision, lower_precision, lower_precision, false},
    {"rnn_tanh_cell", lower_precision, lower_precision, lower_precision, lower_precision, false},
    {"scaled_dot_product_attention", lower_precision, lower_precision, lower_precision, lower_precision, false},
    {"conv_transpose3d", lower_precision, lower_precision, fp32, lower_precision, false},
    {"linalg_vecdot", lower_precision, lower_precision, fp32_output, lower_precision, false},
    {"addmv", lower_precision, unlisted, lower_precision, lower_precision, false},
    {"addr", lower_precision, unlisted, lower_precision, lower_precision},
    {"convolution", lower_precision, unlisted, lower_precision, lower_precision, false},
    {"lstm_cell", lower_precision, unlisted, lower_precision, lower_precision, false},
    {"mv", lower_precision, unlisted, lower_precision, lower_precision, false},
    {"gru_cell", lower_precision, unlisted, unlisted, lower_precision, false},
    {"_scaled_dot_product_flash_attention", lower_precision, unlisted, unlisted, lower_precision},
    {"_thnn_fused_gru_cell", lower_precision, unlisted, unlisted, lower_precision},
    {"_thnn_fused_lstm_cell", lower_precision, unlisted, unlisted, lower_precision},
    {"cudnn_convolution", lower_precision, unlisted, unlisted, unlisted},
    {"cudnn_convolution_transpose", lower_precision, unlisted, unlisted, unlisted},
    {"_cudnn_rnn", lower_precision, unlisted, unlisted, unlisted},

    {"binary_cross_entropy_with_logits", fp32, fp32, fp32, fp32},
    {"cdist", fp32, fp32, fp32, fp32, false},
    {"cosine_embedding_loss", fp32, fp32, fp32, fp32},
    {"cross_entropy", fp32, fp32, fp32, fp32},
    {"cross_entropy_loss", fp32, fp32, fp32, fp32},
    {"hinge_embedding_loss", fp32, fp32, fp32, fp32},
    {"huber_loss", fp32, fp32, fp32, fp32},
    {"kl_div", fp32, fp32, fp32, fp32},
    {"l1_loss", fp32, fp32, fp32, fp32},
    {"margin_ranking_loss", fp32, fp32, fp32, fp32},
    {"mse_loss", fp32, fp32, fp32, fp32},
    {"multi_margin_loss", fp32, fp32, fp32, fp32},
    {"multilabel_margin_loss", fp32, fp32, fp32, fp32},
    {"nll_loss", fp32, fp32, fp32, fp32},
    {"nll_loss2d", fp32, fp32, fp32, fp32},
    {"poisson_nll_loss", fp32, fp32, fp32, fp32},
    {"smooth_l1_loss", fp32, fp32, fp32, fp32},
    {"soft_margin_loss", fp32, fp32, fp32, fp32},
    {"triplet_margin_loss", fp32, fp32, fp32, fp32},
    {"linalg_matrix_sqrth", fp32, fp32, unlisted, unlisted},
    {"acos", fp32, unlisted, fp32, fp32},
    {"asin", fp32, unlisted, fp32, fp32},
    {"cosh", fp32, unlisted, fp32, fp32},
    {"cosine_similarity", fp32, unlisted, fp32, fp32},
    {"dist", fp32, unlisted, fp32, fp32},
    {"erfinv", fp32, unlisted, fp32, fp32},
    {"exp", fp32, unlisted, fp32, fp32},
    {"expm1", fp32, unlisted, fp32, fp32},
    {"frobenius_norm", fp32, unlisted, fp32, fp32},
    {"group_norm", fp32, unlisted, fp32, fp32},
    {"layer_norm", fp32, unlisted, fp32, fp32},
    {"log", fp32, unlisted, fp32, fp32},
    {"log10", fp32, unlisted, fp32, fp32},
    {"log1p", fp32, unlisted, fp32, fp32},
    {"log2", fp32, unlisted, fp32, fp32},
    {"logsumexp", fp32, unlisted, fp32, fp32},
    {"native_layer_norm", fp32, unlisted, fp32, fp32},
    {"nuclear_norm", fp32, unlisted, fp32, fp32},
    {"pdist", fp32, unlisted, fp32, fp32},
    {"pow", fp32, unlisted, fp32, fp32},
    {"reciprocal", fp32, unlisted, fp32, fp32},
    {"renorm", fp32, unlisted, fp32, fp32},
    {"rsqrt", fp32, unlisted, fp32, fp32},
    {"sinh", fp32, unlisted, fp32, fp32},
    {"softplus", fp32, unlisted, fp32, fp32},
    {"tan", fp32, unlisted, fp32, fp32},
    {"rms_norm", fp32, unlisted, unlisted, fp32},
    {"upsample_bicubic2d", fp32, unlisted, unlisted, fp32},
    {"_upsample_bicubic2d_aa", fp32, unlisted, unlisted, fp32},
    {"upsample_bilinear2d", fp32, unlisted, unlisted, fp32},
    {"_upsample_bilinear2d_aa", fp32, unlisted, unlisted, fp32},
    {"upsample_linear1d", fp32, unlisted, unlisted, fp32},
    {"upsample_nearest1d", fp32, unlisted, unlisted, fp32},
    {"upsample_nearest2d", fp32, unlisted, unlisted, fp32},
    {"upsample_nearest3d", fp32, unlisted, unlisted, fp32},
    {"_upsample_nearest_exact1d", fp32, unlisted, unlisted, fp32},
    {"_upsample_nearest_exact2d", fp32, unlisted, unlisted, fp32},
    {"_upsample_nearest_exact3d", fp32, unlisted, unlisted, fp32},
    {"upsample_trilinear3d", fp32, unlisted, unlisted, fp32},

    {"binary_cross_entropy", banned, fp32, unlisted, banned, false},

    {"prod", fp32_output, fp32, fp32, fp32_output, true, true},
    {"cumprod", fp32_output, unlisted, fp32, fp32_output, true, true},
    {"cumsum", fp32_output, unlisted, fp32, fp32_output, true, true},
    {"linalg_matrix_norm", fp32_output, unlisted, fp32, fp32_output, true, true},
    {"linalg_vector_norm", fp32_output, unlisted, fp32, fp32_output, true, true},
    {"log_softmax", fp32_output, unlisted, fp32, fp32_output, true, true},
    {"softmax", fp32_output, unlisted, fp32, fp32_output, true, true},
    {"sum", fp32_output, unlisted, fp32, fp32_output, true, true},
    {"norm", fp32_output, unlisted, unlisted, fp32_output, true, true},

    {"tensordot", widest, lower_precision, widest, widest, false},
    {"grid_sampler", widest, fp32, widest, widest, false},
    {"addcdiv", widest, unlisted, widest, widest},
    {"addcmul", widest, unlisted, widest, widest},
    {"atan2", widest, unlisted, widest, widest},
    {"bilinear", widest, unlisted, widest, widest, false},
    {"cross", widest, unlisted, widest, widest, false},
    {"dot", widest, unlisted, widest, widest, false},
    {"index_put", widest, unlisted, widest, widest, false},
    {"scatter_add", widest, unlisted, widest, widest, false},
    {"vdot", widest, unlisted, unlisted, widest, false},

    {"_addmm_activation", unlisted, lower_precision, unlisted, unlisted, false},
    {"mkldnn_rnn_layer", unlisted, lower_precision, unlisted, unlisted},
    {"_native_multi_head_attention", unlisted, lower_precision, unlisted, unlisted},
    {"adaptive_avg_pool3d", unlisted, fp32, unlisted, unlisted},
    {"adaptive_max_pool3d", unlisted, fp32, unlisted, unlisted},
    {"avg_pool3d", unlisted, fp32, unlisted, unlisted},
    {"cholesky_inverse", unlisted, fp32, unlisted, unlisted},
    {"cholesky_solve", unlisted, fp32, unlisted, unlisted, false},
    {"ctc_loss", unlisted, fp32, unlisted, unlisted},
    {"fake_quantize_per_tensor_affine", unlisted, fp32, unlisted, unlisted},
    {"fft_fft", unlisted, fp32, unlisted, unlisted},
    {"fft_fft2", unlisted, fp32, unlisted, unlisted},
    {"fft_fftn", unlisted, fp32, unlisted, unlisted},
    {"fft_hfft", unlisted, fp32, unlisted, unlisted},
    {"fft_ifft", unlisted, fp32, unlisted, unlisted},
    {"fft_ifft2", unlisted, fp32, unlisted, unlisted},
    {"fft_ifftn", unlisted, fp32, unlisted, unlisted},
    {"fft_ihfft", unlisted, fp32, unlisted, unlisted},
    {"fft_irfft", unlisted, fp32, unlisted, unlisted},
    {"fft_irfft2", unlisted, fp32, unlisted, unlisted},
    {"fft_irfftn", unlisted, fp32, unlisted, unlisted},
    {"fft_rfft", unlisted, fp32, unlisted, unlisted},
    {"fft_rfft2", unlisted, fp32, unlisted, unlisted},
    {"fft_rfftn", unlisted, fp32, unlisted, unlisted},
    {"fractional_max_pool2d", unlisted, fp32, unlisted, unlisted, false},
    {"fractional_max_pool3d", unlisted, fp32, unlisted, unlisted, false},
    {"geqrf", unlisted, fp32, unlisted, unlisted},
    {"grid_sampler_2d", unlisted, fp32, unlisted, unlisted, false},
    {"_grid_sampler_2d_cpu_fallback", unlisted, fp32, unlisted, unlisted, false},
    {"grid_sampler_3d", unlisted, fp32, unlisted, unlisted, false},
    {"inverse", unlisted, fp32, unlisted, unlisted},
    {"linalg_cholesky", unlisted, fp32, unlisted, unlisted},
    {"linalg_cholesky_ex", unlisted, fp32, unlisted, unlisted},
    {"linalg_cond", unlisted, fp32, unlisted, unlisted},
    {"linalg_eig", unlisted, fp32, unlisted, unlisted},
    {"linalg_eigh", unlisted, fp32, unlisted, unlisted},
    {"linalg_eigvals", unlisted, fp32, unlisted, unlisted},
    {"linalg_eigvalsh", unlisted, fp32, unlisted, unlisted},
    {"linalg_householder_product", unlisted, fp32, unlisted, unlisted, false},
    {"linalg_inv", unlisted, fp32, unlisted, unlisted},
    {"linalg_inv_ex", unlisted, fp32, unlisted, unlisted},
    {"linalg_lstsq", unlisted, fp32, unlisted, unlisted, false},
    {"linalg_matrix_rank", unlisted, fp32, unlisted, unlisted},
    {"linalg_qr", unlisted, fp32, unlisted, unlisted},
    {"linalg_solve", unlisted, fp32, unlisted, unlisted, false},
    {"linalg_svd", unlisted, fp32, unlisted, unlisted},
    {"linalg_svdvals", unlisted, fp32, unlisted, unlisted},
    {"linalg_tensorinv", unlisted, fp32, unlisted, unlisted},
    {"linalg_tensorsolve", unlisted, fp32, unlisted, unlisted, false},
    {"lu_solve", unlisted, fp32, unlisted, unlisted, false},
    {"_lu_with_info", unlisted, fp32, unlisted, unlisted},
    {"max_pool3d", unlisted, fp32, unlisted, unlisted},
    {"max_unpool2d", unlisted, fp32, unlisted, unlisted},
    {"max_unpool3d", unlisted, fp32, unlisted, unlisted},
    {"multilabel_margin_loss_forward", unlisted, fp32, unlisted, unlisted},
    {"nanquantile", unlisted, fp32, unlisted, unlisted},
    {"orgqr", unlisted, fp32, unlisted, unlisted, false},
    {"ormqr", unlisted, fp32, unlisted, unlisted, false},
    {"pinverse", unlisted, fp32, unlisted, unlisted},
    {"polar", unlisted, fp32, unlisted, unlisted, false},
    {"quantile", unlisted, fp32, unlisted, unlisted},
    {"reflection_pad1d", unlisted, fp32, unlisted, unlisted},
    {"reflection_pad2d", unlisted, fp32, unlisted, unlisted},
    {"replication_pad1d", unlisted, fp32, unlisted, unlisted},
    {"replication_pad2d", unlisted, fp32, unlisted, unlisted},
    {"replication_pad3d", unlisted, fp32, unlisted, unlisted},
    {"stft", unlisted, fp32, unlisted, unlisted},
    {"svd", unlisted, fp32, unlisted, unlisted},
    {"trace", unlisted, fp32, unlisted, unlisted},
    {"triangular_solve", unlisted, fp32, unlisted, unlisted, false},
    {"view_as_complex", unlisted, fp32, unlisted, unlisted},
    {"cat", unlisted, widest, unlisted, unlisted},
    {"index_copy", unlisted, widest, unlisted, unlisted, false},
    {"stack", unlisted, widest, unlisted, unlisted},
    {"_mps_convolution", unlisted, unlisted, lower_precision, unlisted},
    {"batch_norm", unlisted, unlisted, fp32, unlisted},
    {"add", unlisted, unlisted, unlisted, unlisted},
    {"avg_pool2d", unlisted, unlisted, unlisted, unlisted},
    {"div", unlisted, unlisted, unlisted, unlisted},
    {"dropout", unlisted, unlisted, unlisted, unlisted},
    {"embedding", unlisted, unlisted, unlisted, unlisted},
    {"gelu", unlisted, unlisted, unlisted, unlisted},
    {"max_pool2d", unlisted, unlisted, unlisted, unlisted},
    {"mean", unlisted, unlisted, unlisted, unlisted, true, true},
    {"mul", unlisted, unlisted, unlisted, unlisted},
    {"relu", unlisted, unlisted, unlisted, unlisted},
    {"rope", unlisted, unlisted, unlisted, unlisted},
    {"scale", unlisted, unlisted, unlisted, unlisted},
    {"sigmoid", unlisted, unlisted, unlisted, unlisted},
    {"silu", unlisted, unlisted, unlisted, unlisted},
    {"tanh", unlisted, unlisted, unlisted, unlisted},
    {"transpose", unlisted, unlisted, unlisted, unlisted},
};

constexpr FormatSpec single = format("fp32");

bool is_half(const FormatSpec& f) { return f == format("fp16") || f == format("bf16"); }

/// The format to which PyTorch promotes the two: two different half formats are promoted to FP32.
FormatSpec promoted(const FormatSpec& a, const FormatSpec& b) { return a == b ? a : single; }

FormatSpec promoted(std::span<const FormatSpec> inputs) {
    FormatSpec result = inputs.front();
    for (const FormatSpec& f : inputs) result = promoted(result, f);
    return result;
}

void check_equal(const AutocastRow& row, std::span<const FormatSpec> inputs) {
    const auto other = std::ranges::find_if(inputs, [&](const FormatSpec& f) { return f != inputs.front(); });
    if (other != inputs.end())
        throw std::invalid_argument(
            fmt::format("{}: operands are {} and {}, but must agree where autocast does not cast "
                        "them: cast one",
                        row.name, inputs.front().name, other->name));
}

/// As PyTorch decides it, from the first operand to the last: once one is FP32, the formats of others do not matter.
FormatSpec widest_of(const AutocastRow& row, const FormatSpec& low, std::span<const FormatSpec> inputs) {
    FormatSpec result = low;
    for (const FormatSpec& f : inputs) {
        if (f == single) result = f;
        else if (result != single && f != low)
            throw std::invalid_argument(
                fmt::format("{}: an operand is {}, but autocast's format is {}", row.name, f.name, low.name));
    }
    return result;
}

/// The formats that the class asks for, without the op's own dtype.
OpFormats formats_by_class(AutocastClass rule, const AutocastRow& row, const FormatSpec& low,
                           std::span<const FormatSpec> inputs) {
    const std::vector<FormatSpec> as_they_are(inputs.begin(), inputs.end());
    const auto all = [&](const FormatSpec& f) { return OpFormats{{inputs.size(), f}, f, rule}; };
    switch (rule) {
    case lower_precision: return all(low);
    case fp32: return all(single);
    case fp32_output: return {as_they_are, single, rule};
    case widest: return all(widest_of(row, low, inputs));
    case banned:
        throw std::invalid_argument(
            fmt::format("{} overflows in fp16 and is refused under autocast: use {}_with_logits", row.name, row.name));
    case unlisted: break;
    }
    if (!row.promotes) check_equal(row, inputs);
    return {as_they_are, promoted(inputs), rule};
}

} // namespace

std::span<const AutocastRow> autocast_rows() { return autocast_table; }

AutocastRow autocast_row(std::string_view op) {
    const auto* const row = std::ranges::find(autocast_table, op, &AutocastRow::name);
    if (row != std::end(autocast_table)) return *row;
    return {op, unlisted, unlisted, unlisted, unlisted, true, true};
}

OpFormats op_formats(const Autocast& autocast, std::string_view op, std::span<const FormatSpec> inputs,
                     const std::optional<FormatSpec>& dtype) {
    const AutocastRow row = autocast_row(op);
    if (inputs.empty()) throw std::invalid_argument(fmt::format("{}: no operands", op));
    const auto check = [&](const FormatSpec& f) {
        if (!is_half(f) && f != single)
            throw std::invalid_argument(fmt::format("{}: autocast knows fp32, fp16 and bf16, not {}", op, f.name));
    };
    std::ranges::for_each(inputs, check);
    if (dtype) check(*dtype);
    if (dtype && !row.takes_dtype) throw std::invalid_argument(fmt::format("{}: takes no dtype", op));
    if (autocast.enabled && !is_half(autocast.low))
        throw std::invalid_argument(fmt::format("autocast to {}: only fp16 and bf16 are supported", autocast.low.name));

    const AutocastClass rule = autocast.enabled ? row.of(autocast.policy) : unlisted;
    OpFormats result = formats_by_class(rule, row, autocast.low, inputs);
    if (dtype) result.output = *dtype;
    return result;
}

std::string_view name_of(AutocastClass c) {
    constexpr std::array<std::string_view, 6> names = {"unlisted",    "lower precision", "fp32",
                                                       "fp32 output", "widest",          "banned"};
    return names[static_cast<std::size_t>(c)];
}

} // namespace amp
