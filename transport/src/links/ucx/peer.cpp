#include "links/ucx/peer.hpp"

namespace rondo::transport::ucx {

ucs_status_t Peer::open(ucp_worker_h worker, ucp_err_handling_mode_t mode, bool& failed) {
  if (endpoint_ != nullptr || status_ != UCS_OK) return status_;
  if (!known()) return UCS_ERR_UNREACHABLE;
  failed_ = &failed;
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address_.data());
  params.err_mode = mode;
  params.err_handler = {.cb = &Peer::report, .arg = this};
  const ucs_status_t status = ucp_ep_create(worker, &params, &endpoint_);
  if (status != UCS_OK) {
    endpoint_ = nullptr;
    status_ = status;
  }
  return status_;
}

void Peer::report(void* peer, ucp_ep_h /*endpoint*/, ucs_status_t status) {
  Peer& self = *static_cast<Peer*>(peer);
  if (self.status_ == UCS_OK) self.status_ = status;
  *self.failed_ = true;
}

void Peer::close(unsigned flags, ucs_status_t why) {
  if (status_ == UCS_OK) status_ = why;
  if (endpoint_ == nullptr) return;
  ucp_request_param_t params{};
  params.op_attr_mask =
      UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.flags = flags;
  params.cb.send = &Peer::end_close;
  params.user_data = this;
  const ucs_status_ptr_t request = ucp_ep_close_nbx(endpoint_, &params);
  endpoint_ = nullptr;
  closing_ = UCS_PTR_IS_PTR(request);
}

void Peer::end_close(void* request, ucs_status_t /*status*/, void* peer) {
  static_cast<Peer*>(peer)->closing_ = false;
  ucp_request_free(request);
}

}  // namespace rondo::transport::ucx
