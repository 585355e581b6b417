// How the conversions of batch.h are carried out: on which instruction set, and whether results go past the caches.
// batch.h chooses for itself; sim/base/batch.h chooses for a whole array, tests choose each way in turn.
#pragma once

#include <ampscope/formats/batch.h>
#include <ampscope/formats/instruction_set.h>

#include <cstddef>

namespace amp::detail {

struct Execution {
    InstructionSet set = best_instruction_set();
    bool streams = false; ///< whether results bypass the caches (see stream.h)
};

/// The choice for an output of that size: one too large for the caches is written past them, as nobody would find it
/// there.
inline Execution execution_for(std::size_t output_bytes) { return {.streams = output_bytes >= std::size_t{64} << 20}; }

/// Out is float (quantize), or std::uint8_t, std::uint16_t or std::uint32_t (encode).
template <class Out>
void round_array(const FormatSpec& format, const float* in, Out* out, std::size_t n, const BatchOptions& options,
                 Execution execution);

/// Code is std::uint8_t, std::uint16_t or std::uint32_t.
template <class Code>
void decode_array(const FormatSpec& format, const Code* in, float* out, std::size_t n, NanRule nan,
                  Execution execution);

void quantize_array(const FormatSpec& format, const double* in, float* out, std::size_t n, const BatchOptions& options,
                    Execution execution);

void apply_array(Operation operation, const FormatSpec& format, const float* a, const float* b, const float* c,
                 float* out, std::size_t n, const BatchOptions& options, Execution execution);

} // namespace amp::detail
