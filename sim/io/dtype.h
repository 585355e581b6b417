// Element types of tensor files, as one table.
#pragma once

#include <ampscope/formats/spec.h>

#include <array>
#include <cstdint>
#include <string_view>

namespace amp {

/// Named after safetensors' dtypes.
enum class DType : std::uint8_t {
    boolean,
    f4,
    f6_e2m3,
    f6_e3m2,
    u8,
    i8,
    f8_e5m2,
    f8_e4m3,
    f8_e8m0,
    f8_e4m3fnuz,
    f8_e5m2fnuz,
    i16,
    u16,
    f16,
    bf16,
    i32,
    u32,
    f32,
    c64,
    f64,
    i64,
    u64,
};

/// How the bits of an element are read. A complex element consists of two FP32 numbers, which are counted separately.
enum class NumberKind : std::uint8_t { format, float64, complex64, signed_integer, unsigned_integer, boolean };

struct DTypeInfo {
    DType dtype;
    std::string_view name; ///< name in safetensors files, JSON and messages
    int bits;              ///< size of an element in bits; F4 and F6 are packed, lowest bits first
    NumberKind kind;
    std::string_view format;        ///< name in the format table if kind is `format` or `complex64`
    std::string_view numpy;         ///< NumPy's kind and size, without byte order; empty if NumPy has no such type
    std::string_view torch;         ///< name after "torch."
    std::string_view torch_storage; ///< class of a typed storage in torch.save files; empty if there is none

    /// Numbers per element (2 for complex) and bits per number.
    [[nodiscard]] constexpr int numbers() const { return kind == NumberKind::complex64 ? 2 : 1; }
    [[nodiscard]] constexpr int number_bits() const { return bits / numbers(); }
    /// The smallest whole number of bytes that holds whole elements: 3 for the 6-bit formats.
    [[nodiscard]] constexpr int unit_bytes() const { return bits >= 8 ? bits / 8 : bits == 6 ? 3 : 1; }
};

inline constexpr std::array dtypes = {
    DTypeInfo{DType::boolean, "BOOL", 8, NumberKind::boolean, "", "b1", "bool", "BoolStorage"},
    DTypeInfo{DType::f4, "F4", 4, NumberKind::format, "e2m1", "", "float4_e2m1fn_x2", ""},
    DTypeInfo{DType::f6_e2m3, "F6_E2M3", 6, NumberKind::format, "e2m3", "", "", ""},
    DTypeInfo{DType::f6_e3m2, "F6_E3M2", 6, NumberKind::format, "e3m2", "", "", ""},
    DTypeInfo{DType::u8, "U8", 8, NumberKind::unsigned_integer, "", "u1", "uint8", "ByteStorage"},
    DTypeInfo{DType::i8, "I8", 8, NumberKind::signed_integer, "", "i1", "int8", "CharStorage"},
    DTypeInfo{DType::f8_e5m2, "F8_E5M2", 8, NumberKind::format, "e5m2", "", "float8_e5m2", ""},
    DTypeInfo{DType::f8_e4m3, "F8_E4M3", 8, NumberKind::format, "e4m3", "", "float8_e4m3fn", ""},
    DTypeInfo{DType::f8_e8m0, "F8_E8M0", 8, NumberKind::format, "e8m0", "", "float8_e8m0fnu", ""},
    DTypeInfo{DType::f8_e4m3fnuz, "F8_E4M3FNUZ", 8, NumberKind::format, "e4m3fnuz", "", "float8_e4m3fnuz", ""},
    DTypeInfo{DType::f8_e5m2fnuz, "F8_E5M2FNUZ", 8, NumberKind::format, "e5m2fnuz", "", "float8_e5m2fnuz", ""},
    DTypeInfo{DType::i16, "I16", 16, NumberKind::signed_integer, "", "i2", "int16", "ShortStorage"},
    DTypeInfo{DType::u16, "U16", 16, NumberKind::unsigned_integer, "", "u2", "uint16", ""},
    DTypeInfo{DType::f16, "F16", 16, NumberKind::format, "fp16", "f2", "float16", "HalfStorage"},
    DTypeInfo{DType::bf16, "BF16", 16, NumberKind::format, "bf16", "", "bfloat16", "BFloat16Storage"},
    DTypeInfo{DType::i32, "I32", 32, NumberKind::signed_integer, "", "i4", "int32", "IntStorage"},
    DTypeInfo{DType::u32, "U32", 32, NumberKind::unsigned_integer, "", "u4", "uint32", ""},
    DTypeInfo{DType::f32, "F32", 32, NumberKind::format, "fp32", "f4", "float32", "FloatStorage"},
    DTypeInfo{DType::c64, "C64", 64, NumberKind::complex64, "fp32", "c8", "complex64", "ComplexFloatStorage"},
    DTypeInfo{DType::f64, "F64", 64, NumberKind::float64, "", "f8", "float64", "DoubleStorage"},
    DTypeInfo{DType::i64, "I64", 64, NumberKind::signed_integer, "", "i8", "int64", "LongStorage"},
    DTypeInfo{DType::u64, "U64", 64, NumberKind::unsigned_integer, "", "u8", "uint64", ""},
};

constexpr const DTypeInfo& info(DType dtype) { return dtypes[static_cast<std::size_t>(dtype)]; }

/// The dtype with that name in safetensors ("BF16"), NumPy ("<f4", "float32"), torch ("bfloat16") or the format table
/// ("e4m3", "fp16"), in upper or lower case. Throws std::invalid_argument for any other name.
DType parse_dtype(std::string_view name);

} // namespace amp
