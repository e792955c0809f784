package claim

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"tallystick/hlc"
	"tallystick/oplog"
	"tallystick/query/imported"
	"tallystick/query/logstream"
)

// Leases (K3).
const (
	DefaultLease = 12 * time.Hour
	MinLease     = hlc.DefaultBound    // never shorter than the clock bound
	MaxLease     = 30 * 24 * time.Hour // longer work renews
)

// TaskKey is the key of the task that an event opens or belongs to: its
// stream and correlation, else its import key, so that two imports of one row
// are one task, else the event itself.
func TaskKey(stream, correlation string, key imported.Key, event oplog.Hash) string {
	switch {
	case correlation != "":
		return "c\x00" + stream + "\x00" + correlation
	case !key.IsZero():
		return "i\x00" + key.Source + "\x00" + key.ID
	}
	return "r\x00" + event.String()
}

// TaskKeyOf is the key of the task that a stored event or ack belongs to.
func TaskKeyOf(e *oplog.Entry) (string, error) {
	raw, err := logstream.Decode(e)
	if err != nil {
		return "", err
	}
	return taskKeyOf(&raw, e.Hash), nil
}

func taskKeyOf(raw *logstream.Raw, hash oplog.Hash) string {
	if raw.Ack {
		return string(raw.Task)
	}
	return TaskKey(string(raw.Stream), string(raw.Correlation), raw.Import, hash)
}

// opens reports whether an event opens a task.
func opens(raw *logstream.Raw) bool {
	return !raw.Ack && (string(raw.Type) == logstream.TypeRequest || strings.HasSuffix(string(raw.Type), ".request") ||
		string(raw.Status) == logstream.StatusOpen)
}

// taskID is a task's name in the view's rows.
type taskID [16]byte

func idOf[T ~string | ~[]byte](key T) taskID {
	d := sha256.Sum256([]byte(key))
	return taskID(d[:16])
}

// actor names an identity at its home: author and device. It is what K2 means
// by "the same identity" and K1 by "its own home". The host part of a tuple
// says no more than the device does (I9), and is left out, so that a device
// that takes another label goes on with the claims it holds.
type actor [16]byte

func actorOf(author string, device []byte) actor {
	if _, rest, full := strings.Cut(author, ":"); full {
		author = ":" + rest
	}
	h := sha256.New()
	fmt.Fprintf(h, "%d\x00%s", len(author), author)
	h.Write(device)
	return actor(h.Sum(nil)[:16])
}

// under is the name by which an author goes at a replica of this label: a
// tuple takes its host from there, a flat name carries none.
func under(author, label string) string {
	if _, rest, full := strings.Cut(author, ":"); full && label != "" {
		return label + ":" + rest
	}
	return author
}

// isOf reports whether what author wrote is of identity, by the name it was
// written under or by the one that the origin's label of today gives it.
func isOf(identity, author string, origin oplog.OriginID, label logstream.Labeler) bool {
	return identity == author || label != nil && identity == under(author, label(origin))
}
