// What    How many file descriptors this process may hold.
// Why     Each registered connection, passed memory and checkpoint shard takes one; the soft limit
//         that a shell or systemd gives is often 1024 although the hard one is far higher.
#ifndef GEMMD_SERVER_DESCRIPTORS_H_
#define GEMMD_SERVER_DESCRIPTORS_H_

namespace gemmd {

// Raises the soft limit to the hard one. The limit that holds now.
int RaiseDescriptorLimit();

// The share of `limit` that memory may hold which clients passed and did not register.
int TicketBudget(int limit);

}  // namespace gemmd

#endif  // GEMMD_SERVER_DESCRIPTORS_H_
