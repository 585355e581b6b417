#include <ampscope/sim/io/dtype.h>

#include <string>

namespace amp {

namespace {

constexpr bool rows_in_order() {
    for (std::size_t i = 0; i < dtypes.size(); ++i)
        if (dtypes[i].dtype != static_cast<DType>(i)) return false;
    return true;
}
static_assert(rows_in_order(), "info() indexes the table by the enumerator");

constexpr bool torch_names_are_aliases() {
    for (const DTypeInfo& row : dtypes)
        if (row.kind == NumberKind::format && !row.torch.empty() && format(row.torch) != format(row.format))
            return false;
    return true;
}
static_assert(torch_names_are_aliases(), "format() understands every element type of torch as the table has it");

} // namespace

DType parse_dtype(std::string_view name) {
    const std::string_view bare = name.starts_with('<') || name.starts_with('|') ? name.substr(1) : name;
    for (const DTypeInfo& row : dtypes)
        if (equal_ignoring_case(name, row.name) || (!row.torch.empty() && equal_ignoring_case(name, row.torch)))
            return row.dtype;
    // "f4", "i8" and "u8" are safetensors' F4, I8 and U8; NumPy's types of these names need the '<'.
    for (const DTypeInfo& row : dtypes)
        if ((!row.numpy.empty() && bare == row.numpy) || (row.kind == NumberKind::format && name == row.format))
            return row.dtype;
    throw_unknown("dtype", name, names_of_rows(dtypes));
}

} // namespace amp
