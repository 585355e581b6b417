// Distributed checkpoints whose .metadata is made by hand.
#pragma once

#include "pickles.h"

namespace amp::test {

using Sizes = std::vector<std::int64_t>;

/// One shard as .metadata has it: its box, and where it is stored.
struct HandmadeShard {
    Sizes offsets, sizes;
    std::string file = "__0_0.distcp";
    std::int64_t begin = 0, length = 0;
    std::string extension{};
};

inline std::string object_of(const std::string& type, const std::string& state) {
    const std::string module = type == "_StorageInfo" ? "filesystem" : "metadata";
    return "ctorch.distributed.checkpoint." + module + "\n" + type + "\n)\x81" + state + "b";
}
inline std::string size_of(const Sizes& sizes) { return "ctorch\nSize\n" + tuple(sizes) + "\x85R"; }

/// The entry of a tensor in state_dict_metadata.
inline std::string metadata_of(const Sizes& shape, const std::vector<HandmadeShard>& shards,
                               const std::string& dtype = "float32") {
    std::string chunks = "](";
    for (const HandmadeShard& s : shards)
        chunks += object_of("ChunkStorageMetadata",
                            "}(" + text("offsets") + size_of(s.offsets) + text("sizes") + size_of(s.sizes) + "u");
    return object_of("TensorStorageMetadata", "}(" + text("properties") +
                                                  object_of("TensorProperties", "(ctorch\n" + dtype + "\nNNNNt") +
                                                  text("size") + size_of(shape) + text("chunks") + chunks + "eu");
}

/// The entries of storage_data for the shards of a tensor.
inline std::string places_of(const std::string& name, const std::vector<HandmadeShard>& shards) {
    std::string places;
    for (const HandmadeShard& s : shards) {
        std::string info = "}(" + text("relative_path") + text(s.file) + text("offset") + number(s.begin) +
                           text("length") + number(s.length);
        if (!s.extension.empty()) info += text("transform_descriptors") + "](" + text(s.extension) + "e";
        places += object_of("MetadataIndex", "}(" + text("fqn") + text(name) + text("offset") + size_of(s.offsets) +
                                                 text("index") + "Nu") +
                  object_of("_StorageInfo", info + "u");
    }
    return places;
}

/// .metadata with these items of its two dicts.
inline std::string metadata_pickle(const std::string& tensors, const std::string& places) {
    return pickled(object_of("Metadata", "}(" + text("state_dict_metadata") + "}(" + tensors + "u" +
                                             text("storage_data") + "}(" + places + "uu"));
}

} // namespace amp::test
