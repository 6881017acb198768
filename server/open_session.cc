#include "server/open_session.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "server/convert_errors.h"
#include "server/logging.h"

namespace gemmd {

absl::StatusOr<std::shared_ptr<Session>> OpenSession(Node& node, const SessionIdentity& identity,
                                                     v1::OpenSessionResponse& response) {
  GEMMD_RETURN_IF_ERROR(CheckLength("name", identity.name, kMaxSessionName));
  GEMMD_ASSIGN_OR_RETURN(std::shared_ptr<Session> session, node.OpenSession(identity));
  response.set_token(node.TokenOf(*session));
  response.set_session_id(node.IdOf(*session));
  LogInfo("session opened", {{"session", node.IdOf(*session)},
                             {"name", identity.name},
                             {"client_pid", identity.pid},
                             {"client_uid", identity.uid},
                             {"transport", identity.transport}});
  return session;
}

void CloseSession(Node& node, const std::shared_ptr<Session>& session, const char* why) {
  if (!node.EndSession(session, why)) return;
  LogInfo("session ended", {{"session", node.IdOf(*session)}, {"why", why}});
}

}  // namespace gemmd
