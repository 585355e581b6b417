// What reports say of recipes: tables, pictures, and an archive of all blocks.
#pragma once

#include <ampscope/tools/amp-histogram/options.h>
#include <ampscope/tools/document/document.h>

#include <string>
#include <vector>

namespace amp::histogram_tool {

/// Adds a section on the recipes that were asked for.
void add_recipes(Document& document, const HistogramFindings& findings, const HistogramToolOptions& options);

/// The pictures of that section.
std::vector<Figure> recipe_figures(const HistogramFindings& findings, const HistogramOptions& options);

/// The bytes of a .npz archive with all blocks of every tensor. An array TENSOR[@STEP]/RECIPE/FIELD has an element for
/// each block, in the shape (blocks below each other, beside each other); FIELD is a number of ScaledBlock. Where
/// several tensors have one name and step, the second is TENSOR@STEP#2. `path` is what errors name.
std::string blocks_archive(const std::filesystem::path& path, const HistogramFindings& findings,
                           const HistogramOptions& options);

} // namespace amp::histogram_tool
