// Joining and parting, element by element.
#pragma once

#include <ampscope/sim/backend/kernels/kernel.h>
#include <ampscope/sim/program/ops/concat.h>

namespace amp::kernels {

/// Parts in memory; null pointers for zeros.
struct PartsData {
    const float* data[3];
    std::int64_t widths[3];
};

struct ConcatKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, PartsData parts) {
        const std::int64_t all = parts.widths[0] + parts.widths[1] + parts.widths[2];
        for (std::int64_t i = 0; i < n;) { // what is left of a part's row
            const std::int64_t row = (begin + i) / all;
            std::int64_t at = (begin + i) % all;
            int part = 0;
            while (at >= parts.widths[part]) at -= parts.widths[part++];
            const std::int64_t left = parts.widths[part] - at, count = left < n - i ? left : n - i;
            const float* const from = parts.data[part];
            for (std::int64_t j = 0; j < count; ++j)
                wide[i + j] = from == nullptr ? 0 : from[row * parts.widths[part] + at + j];
            i += count;
        }
    }
};

/// A part of rows of `all` numbers: `width` of them, from `offset` on.
struct SplitKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* in, std::int64_t all,
                             std::int64_t width, std::int64_t offset) {
        for (std::int64_t i = 0; i < n;) {
            const std::int64_t row = (begin + i) / width, at = (begin + i) % width;
            const std::int64_t count = width - at < n - i ? width - at : n - i;
            for (std::int64_t j = 0; j < count; ++j) wide[i + j] = in[row * all + offset + at + j];
            i += count;
        }
    }
};

} // namespace amp::kernels

namespace amp::op {

template <class On>
void run(On& on, const Concat& op) {
    kernels::PartsData parts{};
    for (std::size_t i = 0; i < 3; ++i) {
        parts.widths[i] = op.parts.widths[i];
        if (op.parts.tensors[i]) parts.data[i] = on.in(op.parts.tensors[i]);
    }
    map(on, kernels::ConcatKernel{}, op.out, parts);
}

template <class On>
void run(On& on, const Split& op) {
    const auto& widths = op.parts.widths;
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < 3; offset += widths[i++])
        if (op.parts.tensors[i])
            map(on, kernels::SplitKernel{}, op.parts.tensors[i], on.in(op.in), widths[0] + widths[1] + widths[2],
                widths[i], offset);
}

} // namespace amp::op
