// The ops whose run() is one template for both backends, since they are nothing but a kernel. A new file of such ops is
// included here.
#pragma once

#include <ampscope/sim/backend/kernels/activation.h>
#include <ampscope/sim/backend/kernels/batch_norm.h>
#include <ampscope/sim/backend/kernels/concat.h>
#include <ampscope/sim/backend/kernels/elementwise.h>
#include <ampscope/sim/backend/kernels/gradient.h>
#include <ampscope/sim/backend/kernels/norm.h>
#include <ampscope/sim/backend/kernels/orthogonal.h>
#include <ampscope/sim/backend/kernels/pool.h>
#include <ampscope/sim/backend/kernels/reduce.h>
#include <ampscope/sim/backend/kernels/rope.h>
#include <ampscope/sim/backend/kernels/second_moment.h>
#include <ampscope/sim/backend/kernels/softmax.h>
