// Reads the pickles that torch.save writes as data: nothing is imported, called or constructed.
//
// It interprets the opcodes that build containers, numbers and strings, and knows the names of the few functions that
// make tensors. Any other call that a pickle would have Python make becomes an Opaque value with the function's name
// and arguments.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace amp::pickle {

struct Value;
using Ref = Value*; ///< values may be shared and may contain themselves; their Pickle owns them

struct None {};
/// The name of a class or function that Python would import.
struct Global {
    std::string name; ///< "module.attribute"
};
/// The name of an Opaque that represents a tensor with pending negation or conjugation.
inline constexpr std::string_view pending = "a tensor with pending operations";
/// The result of something that this reader does not evaluate, such as an object of an unknown class: the function or
/// class that Python would call, the sequence of arguments, and the state that it would then set; null where there is
/// none.
struct Opaque {
    std::string name;
    Ref args = nullptr, state = nullptr;
};
struct Sequence { ///< tuple or list
    std::vector<Ref> items;
};
struct Dict {
    std::vector<std::pair<Ref, Ref>> items;
};
/// The tuple that torch.save stores in place of a storage.
struct Storage {
    std::string type;       ///< "torch.FloatStorage", "torch.storage.UntypedStorage"
    std::string key;        ///< name of the archive's member data/<key>
    std::uint64_t size = 0; ///< number of elements; of an untyped storage: number of bytes
};
/// A call of torch._utils._rebuild_tensor_v2 or v3; `dtype` is, for instance, "torch.float8_e4m3fn" for v3, and empty
/// for v2. A tensor with pending negation or conjugation (its metadata say so) is an Opaque instead, as its storage
/// does not hold its values.
struct Tensor {
    Storage storage;
    std::uint64_t offset = 0; ///< in elements of the storage
    std::vector<std::uint64_t> shape, stride;
    std::string dtype;
};

struct Value {
    std::variant<None, bool, std::int64_t, double, std::string, Global, Opaque, Sequence, Dict, Storage, Tensor> data;
};

struct Pickle {
    std::deque<Value> values; ///< all values ever built; their addresses stay the same
    Ref root = nullptr;
};

/// Interprets a pickle of protocol 2 to 5. `fail(byte, what)` must throw; it is called at the first opcode that is
/// unknown, truncated or applied to wrong operands. Memory is bounded by a small multiple of the pickle's size and by
/// `most_values`; names of more than 1000 bytes and tensors of more than 64 dimensions are refused.
Pickle load(std::string_view bytes, const std::function<void(std::size_t byte, const std::string& what)>& fail,
            std::size_t most_values = 1'000'000);

} // namespace amp::pickle
