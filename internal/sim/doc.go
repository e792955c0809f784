// Package sim runs a whole mesh of replicas in one goroutine and virtual
// time: real sync cores (replica.Core) over real logs with real folds, with
// delays, cut connections, repeated frames, crossed dials, partitions and
// crashes drawn from one seed. It shows what the musts of the design come to
// when everything that can go wrong goes wrong at once, and it shows it again:
// the same seed gives the same trace, and the trace has a hash.
//
// Run plays one seed; a Result says what happened and holds the hash. A
// failing seed is replayed with the command that the test prints:
//
//	go test ./internal/sim -run 'TestSeed$' -seed N -show
//
// What a run checks while faults go on: a peer is never said to hold what it
// does not durably hold (L1), each origin is wanted from one peer at a time,
// and no session takes more bytes than its window. What it checks after
// healing, within a bounded virtual time: frontiers and view digests are
// equal, every acknowledged append is visible everywhere, each claimed task
// has one winner everywhere (K1), each settled loser exactly one superseded
// ack (K4), and the mesh falls silent.
package sim
