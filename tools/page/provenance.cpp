#include <ampscope/tools/page/provenance.h>

#include <ampscope/sim/io/tensor_file.h>

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <fstream>
#include <memory>
#include <vector>

namespace amp {

SourceFile hashed(const std::filesystem::path& file, const std::string& name) {
    constexpr std::size_t block = 1 << 20;
    std::ifstream in(file, std::ios::binary);
    if (!in) throw FileError(file, "cannot be read");
    const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
    std::vector<char> buffer(block);
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int length = 0;
    SourceFile source{.name = name, .bytes = 0, .sha256 = {}};
    bool good = EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
    while (good && in.read(buffer.data(), block).gcount() > 0) {
        const auto n = static_cast<std::size_t>(in.gcount());
        good = EVP_DigestUpdate(context.get(), buffer.data(), n) == 1;
        source.bytes += n;
    }
    if (!good || EVP_DigestFinal_ex(context.get(), digest.data(), &length) != 1)
        throw FileError(file, "cannot be hashed");
    for (unsigned int i = 0; i < length; ++i) source.sha256 += fmt::format("{:02x}", digest[i]);
    return source;
}

} // namespace amp
