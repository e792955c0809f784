package sim

import (
	"testing"
	"time"

	"tallystick/oplog"
)

func putAt(t *testing.T, n *Node, i, size int) oplog.Hash {
	t.Helper()
	op, err := artifactAt(n, i, size)
	act(t, n, op, err)
	return n.w.shared[len(n.w.shared)-1].hash
}

// Content reaches a replica that never meets its author, through one that had
// to fetch it itself; the entry is there before.
func TestL1_BlobByWayOfARelay(t *testing.T) {
	w := scenario(t, Config{Replicas: 3})
	w.Cut(0, 2, false)
	w.rate = 64 << 10 // a chunk takes four seconds
	h := putAt(t, w.nodes[0], 1, 2*oplog.ChunkSize+10)
	w.Play(3 * time.Second)
	if !w.nodes[2].has(w.nodes[0]) || w.nodes[2].log.HasBlob(h) || w.nodes[1].log.HasBlob(h) {
		t.Fatal("the entry does not come before its content")
	}
	w.Play(2 * time.Minute)
	if !w.nodes[2].log.HasBlob(h) {
		t.Error("the content never came")
	}
	w.Mend(0, 2)
	settle(t, w)
}

// A transfer that is cut off goes on where it was, with somebody else.
func TestL1_BlobGoesOnElsewhere(t *testing.T) {
	w := scenario(t, Config{Replicas: 3})
	w.Partition(false, 2)
	h := putAt(t, w.nodes[0], 1, 6*oplog.ChunkSize)
	w.Play(20 * time.Second)
	if !w.nodes[1].log.HasBlob(h) {
		t.Fatal("replica 1 has not got it")
	}
	w.rate = 128 << 10
	w.Mend(0, 2)
	w.Play(10 * time.Second)
	st, err := w.nodes[2].log.BlobState(h)
	if err != nil || st.Have == 0 || st.Whole {
		t.Fatalf("after ten seconds: %+v, %v", st, err)
	}
	w.Cut(0, 2, false)
	w.nodes[2].crash()
	w.nodes[2].start()
	missing, _ := w.nodes[2].log.MissingBlobs()
	if len(missing) != 1 || missing[0].Have == 0 {
		t.Fatalf("what was there is forgotten: %+v", missing)
	}
	w.Mend(1, 2)
	w.Play(40 * time.Second)
	if !w.nodes[2].log.HasBlob(h) {
		t.Error("the rest never came")
	}
	w.Mend(0, 2)
	settle(t, w)
}

// Entries do not wait for content: while much of it is on its way over a slow
// stream, an event arrives within the time of a few chunks.
func TestA3_EntriesPassBlobs(t *testing.T) {
	w := scenario(t, Config{Replicas: 2})
	w.rate = 256 << 10
	putAt(t, w.nodes[0], 1, 40*oplog.ChunkSize)
	w.Play(5 * time.Second)
	noteAt(t, w.nodes[0], 1)
	before := w.q.now
	for !w.nodes[1].has(w.nodes[0]) && w.q.now < before+time.Minute {
		w.Play(100 * time.Millisecond)
	}
	if took := w.q.now - before; took > 5*time.Second {
		t.Errorf("the event took %v", took)
	}
	w.rate = 0
	settle(t, w)
}
