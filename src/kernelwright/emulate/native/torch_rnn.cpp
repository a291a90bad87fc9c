// The recurrent cells that PyTorch has for GPUs only, written with operators that it has everywhere.
//
// Why: nn.LSTM, nn.GRU and their cells pick these operators when the input is a CUDA tensor. The rule: results,
// workspaces and gradients are those of aten/src/ATen/native/cuda/RNN.cu.
#include <ATen/core/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <tuple>

namespace kw {
namespace {

using at::Tensor;
using MaybeTensor = std::optional<Tensor>;

Tensor plus(const Tensor& gates, const MaybeTensor& bias) { return bias && bias->defined() ? gates + *bias : gates; }

// Gates i, f, g, o; the workspace holds them after their nonlinearity.
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& igates, const Tensor& hgates, const Tensor& cx,
                                             const MaybeTensor& ibias, const MaybeTensor& hbias) {
  auto gates = (plus(igates, ibias) + plus(hgates, hbias)).chunk(4, 1);
  Tensor i = gates[0].sigmoid(), f = gates[1].sigmoid(), g = gates[2].tanh(), o = gates[3].sigmoid();
  Tensor cy = f * cx + i * g;
  return {o * cy.tanh(), cy, at::cat({i, f, g, o}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_backward(const MaybeTensor& grad_hy, const MaybeTensor& grad_cy, const Tensor& cx,
                                                 const Tensor& cy, const Tensor& workspace, bool has_bias) {
  auto gates = workspace.chunk(4, 1);
  const Tensor &i = gates[0], &f = gates[1], &g = gates[2], &o = gates[3];
  Tensor gh = grad_hy && grad_hy->defined() ? *grad_hy : at::zeros_like(cx);
  Tensor gc = grad_cy && grad_cy->defined() ? *grad_cy : at::zeros_like(cx);
  Tensor t = cy.tanh();
  Tensor gcx = gh * o * (1 - t * t) + gc;
  Tensor grad = at::cat({gcx * g * i * (1 - i), gcx * cx * f * (1 - f), gcx * i * (1 - g * g), gh * t * o * (1 - o)}, 1);
  return {grad, gcx * f, has_bias ? grad.sum(0) : Tensor()};
}

// Gates r, z, n; the workspace holds r, z, n, h and the hidden part of n, as the backward pass wants them.
std::tuple<Tensor, Tensor> gru_cell(const Tensor& igates, const Tensor& hgates, const Tensor& hx, const MaybeTensor& ibias,
                                    const MaybeTensor& hbias) {
  auto in = plus(igates, ibias).chunk(3, 1), hidden = plus(hgates, hbias).chunk(3, 1);
  Tensor r = (in[0] + hidden[0]).sigmoid(), z = (in[1] + hidden[1]).sigmoid();
  Tensor n = (in[2] + r * hidden[2]).tanh();
  return {n + z * (hx - n), at::cat({r, z, n, hx, hidden[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_backward(const Tensor& grad_hy, const Tensor& workspace, bool has_bias) {
  auto saved = workspace.chunk(5, 1);
  const Tensor &r = saved[0], &z = saved[1], &n = saved[2], &hx = saved[3], &hn = saved[4];
  Tensor gn = grad_hy * (1 - z) * (1 - n * n), gz = grad_hy * (hx - n) * (1 - z) * z, gr = gn * hn * (1 - r) * r;
  Tensor in = at::cat({gr, gz, gn}, 1), hidden = at::cat({gr, gz, gn * r}, 1);
  return {in, hidden, grad_hy * z, has_bias ? in.sum(0) : Tensor(), has_bias ? hidden.sum(0) : Tensor()};
}

}  // namespace

void register_recurrent(torch::Library& aten) {
  aten.impl("_thnn_fused_lstm_cell", &lstm_cell);
  aten.impl("_thnn_fused_lstm_cell_backward_impl", &lstm_backward);
  aten.impl("_thnn_fused_gru_cell", &gru_cell);
  aten.impl("_thnn_fused_gru_cell_backward", &gru_backward);
}

}  // namespace kw
