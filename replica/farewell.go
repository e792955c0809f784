package replica

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"tallystick/oplog"
)

// A device that is no member any more is refused in the handshake, where no
// reason can be given. So it may ask for one: on the ALPN tally-ended/1, which
// takes such devices and nobody else, it is told in one frame, and nothing else
// is spoken. What it was told it keeps in its state directory, until a member
// takes it in again.

const (
	alpnEnded  = "tally-ended/1"
	endedMagic = "tallyend"
	endedFile  = "ended"
)

// endedWord is the answer and the file.
type endedWord struct {
	Standing uint8
	Key      []byte // of the device it is about
	By       string // label of the replica that wrote the act, as far as known
	At       int64  // unix ms
	Reason   string
	Teller   []byte // device key of who told it; in the file only
}

func (w *endedWord) valid(key oplog.DeviceKey) bool {
	s := Standing(w.Standing)
	return string(w.Key) == string(key[:]) && (s == Revoked || s == Left || s == Suspended) &&
		len(w.By) <= maxLabel && len(w.Reason) <= maxRevokeWords && (len(w.Teller) == 0 || len(w.Teller) == len(key))
}

// OwnEnding says how this device ceased to be a member.
type OwnEnding struct {
	Standing Standing
	By       string
	At       time.Time
	Reason   string
	Known    bool // by the own log; else a member has said so
}

func (e *OwnEnding) String() string { return endedText(e.Standing, e.By, e.At, e.Reason) }

// OwnEnding is nil as long as this device is a member, as far as it knows.
func (r *Replica) OwnEnding() (*OwnEnding, error) {
	if _, ended := r.log.Endings()[r.key]; ended {
		list, err := r.Departed()
		for _, d := range list {
			if d.Key == r.key {
				return &OwnEnding{d.Ending.Standing, d.By, d.Ending.Act.Time().Time().UTC(), d.Reason, true}, nil
			}
		}
		if err != nil {
			return nil, storeError(r.cfg.Dir, err)
		}
	}
	w := r.told.Load()
	if w == nil {
		return nil, nil
	}
	return &OwnEnding{Standing(w.Standing), w.By, time.UnixMilli(w.At).UTC(), w.Reason, false}, nil
}

// isEnded reports whether this device's own log has ended, by that log.
func (r *Replica) isEnded() bool {
	_, ended := r.log.Endings()[r.key]
	return ended
}

// serveEnded tells a device what has become of it.
func (r *Replica) serveEnded(conn *tls.Conn, peer oplog.DeviceKey) {
	if conn.SetDeadline(time.Now().Add(r.cfg.Timing.Handshake)) != nil {
		return
	}
	list, err := r.Departed()
	for _, d := range list {
		if d.Key != peer {
			continue
		}
		w := endedWord{Standing: uint8(d.Ending.Standing), Key: peer[:], By: d.By, At: d.Ending.Act.Time().Millis(), Reason: d.Reason}
		err = writeJoin(conn, endedMagic, &w)
	}
	if err != nil {
		r.logger.Info("a former member was not told", slog.String("device", shortKey(peer)), slog.Any("error", err))
	}
}

// askEnded asks a member that refused this device for the reason. It reports
// whether there is one.
func (r *Replica) askEnded(ctx context.Context, addr string, want oplog.DeviceKey) bool {
	conn, peer, err := r.tr.dial(ctx, addr, alpnEnded, want)
	if err != nil {
		return false
	}
	defer conn.Close()
	if conn.SetDeadline(time.Now().Add(r.cfg.Timing.Handshake)) != nil {
		return false
	}
	var w endedWord
	if readJoin(conn, endedMagic, &w) != nil || !w.valid(r.key) {
		return false
	}
	r.hearEnded(&w, peer)
	return true
}

// askWhy asks a member that hung up.
func (r *Replica) askWhy(peer oplog.DeviceKey) {
	for _, addr := range r.dialer.addrsOf(peer) {
		if r.askEnded(r.ctx, addr, peer) || r.ctx.Err() != nil {
			return
		}
	}
}

// hearEnded keeps what a member has told.
func (r *Replica) hearEnded(w *endedWord, from oplog.DeviceKey) {
	w.Teller = from[:]
	if old := r.told.Swap(w); old != nil && old.At == w.At && old.Standing == w.Standing {
		return
	}
	r.logger.Error(endedText(Standing(w.Standing), w.By, time.UnixMilli(w.At), w.Reason), slog.String("told by", shortKey(from)))
	body, err := marshalArrays(w)
	if err == nil {
		err = writeFile(filepath.Join(r.cfg.StateDir, endedFile), encodeFile(endedMagic, body), false)
	}
	if err != nil {
		r.logger.Warn("what a member has told is not kept", slog.Any("error", err))
	}
}

// loadEnded reads what a member told before the last stop.
func (r *Replica) loadEnded() {
	path := filepath.Join(r.cfg.StateDir, endedFile)
	b, err := readSmall(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var w *endedWord
	if err == nil {
		w, err = decodeEnded(b)
	}
	if err != nil || !w.valid(r.key) {
		r.logger.Warn("what a member has told is lost; it is told again", slog.String("file", path), slog.Any("error", err))
		return
	}
	r.told.Store(w)
}

func decodeEnded(b []byte) (*endedWord, error) {
	body, err := decodeFile(endedMagic, b)
	if err != nil {
		return nil, err
	}
	w := new(endedWord)
	return w, unmarshalArrays(body, w)
}

// takenIn forgets what a member told once that one speaks with this device
// again. Others may just not have heard of a revoke yet; only who was suspended
// is a member again as soon as anybody says so.
func (r *Replica) takenIn(by oplog.DeviceKey) {
	w := r.told.Load()
	if w == nil || Standing(w.Standing) != Suspended && string(w.Teller) != string(by[:]) || !r.told.CompareAndSwap(w, nil) {
		return
	}
	r.logger.Info("this device is a member again")
	if err := os.Remove(filepath.Join(r.cfg.StateDir, endedFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.logger.Warn("what a member has told is not forgotten", slog.Any("error", err))
	}
}
