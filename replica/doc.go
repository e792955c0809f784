// Package replica is one participant of a mesh: it owns the log of its
// machine, keeps the membership, and exchanges entries with the other
// replicas until all hold the same. It is what a program embeds.
//
// [Open] starts a replica; on a fresh home it makes a device key and founds a
// mesh of one. [Replica.Invite] gives a token with which [Join] makes another
// home a member. [Replica.Append] writes, [Replica.View] reads; neither waits
// for the network (A1). [Replica.Status] and [Replica.Horizon] say how far
// the others are.
//
// # Guarantees
//
//   - What a peer hears of is durable here (L1), and what Append acknowledged
//     reaches every member that can be reached, directly or through others.
//   - Peers talk over TLS 1.3 with both device keys; who is no member is
//     refused in the handshake (T1). A member that has not heard of a newer one
//     is shown its admission, which leads back to the genesis by signatures.
//   - Memberlist carries hints and liveness only. With UDP blocked, or with
//     Config.Static, the sync streams carry everything; remembered addresses
//     are dialled again for ever.
//   - Entries of a device that is not admitted are held, and an author of
//     another host than its replica is quarantined (I9).
//
// # Hazards
//
// The certificate a replica shows on its mesh port tells its label and those
// of the devices that admitted it, to whoever connects. The state directory
// holds the device key: a copy of it is a second device with the same name.
// An invite is as good as a key while it is open.
//
// # How it is built
//
// The decisions of replication live in [Core], which has Step and Tick and
// does no IO; the goroutines here carry them out, and internal/sim drives the
// same Core in virtual time.
package replica
