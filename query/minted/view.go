package minted

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"tallystick/oplog"
)

// Names of the views.
const (
	ViewName     = "identity"
	SpeakersName = "speaker"
)

// The rows of the view of names.
//
//	m host 0 agent 0 project 0 flags root 0 remote 0   earliest Ref, latest Ref
//	o host 0 agent 0 former                            earliest Ref
//	n                                                  how many of these there are
const (
	rowMint   = 'm'
	rowFormer = 'o'
	rowCount  = 'n'

	flagFlat   = 1
	flagChosen = 2
)

// View folds minted names.
type View struct{}

// Name is "identity".
func (View) Name() string { return ViewName }

// Version of the rows.
func (View) Version() uint32 { return 1 }

// Kinds are names.
func (View) Kinds() []string { return []string{Kind} }

// Apply checks one entry and keeps the first and the last of equal ones.
func (View) Apply(tx oplog.Tx, e *oplog.Entry) error {
	m, err := Decode(e)
	if err != nil {
		return err
	}
	ref := e.Ref()
	k := m.key()
	v, err := tx.Get(k)
	switch {
	case errors.Is(err, oplog.ErrNotFound):
		if err := tx.Insert(k, append(append([]byte{}, ref[:]...), ref[:]...)); err != nil {
			return err
		}
		if err := count(tx); err != nil {
			return err
		}
	case err != nil:
		return err
	case len(v) != 2*oplog.RefSize:
		return errRow
	default:
		first, last := oplog.Ref(v[:oplog.RefSize]), oplog.Ref(v[oplog.RefSize:])
		if ref.Compare(first) < 0 {
			first = ref
		}
		if ref.Compare(last) > 0 {
			last = ref
		}
		if err := tx.Set(k, append(append([]byte{}, first[:]...), last[:]...)); err != nil {
			return err
		}
	}
	for _, name := range m.Former {
		if err := former(tx, &m, name, ref); err != nil {
			return err
		}
	}
	return nil
}

func former(tx oplog.Tx, m *Mint, name string, ref oplog.Ref) error {
	k := append(formerPrefix(m.Host, m.Agent), name...)
	v, err := tx.Get(k)
	switch {
	case errors.Is(err, oplog.ErrNotFound):
		if err := tx.Insert(k, append([]byte{}, ref[:]...)); err != nil {
			return err
		}
		return count(tx)
	case err != nil:
		return err
	case len(v) != oplog.RefSize:
		return errRow
	}
	if first := oplog.Ref(v); ref.Compare(first) >= 0 {
		return nil
	}
	return tx.Set(k, append([]byte{}, ref[:]...))
}

var errRow = errors.New("minted: a row of the view has the wrong size")

// count says that there is one more row, so that a reader can tell at the
// price of one key whether what it decided still holds.
func count(tx oplog.Tx) error {
	n, err := readCount(tx)
	if err != nil {
		return err
	}
	return tx.Set([]byte{rowCount}, binary.BigEndian.AppendUint64(nil, n+1))
}

func readCount(r oplog.Reader) (uint64, error) {
	v, err := r.Get([]byte{rowCount})
	if errors.Is(err, oplog.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if len(v) != 8 {
		return 0, errRow
	}
	return binary.BigEndian.Uint64(v), nil
}

// Count grows whenever a decision may change: with every name that is new,
// minted or spoken under.
func Count(views oplog.Views) (uint64, error) {
	a, err := readCount(views.View(ViewName))
	if err != nil {
		return 0, err
	}
	b, err := readCount(views.View(SpeakersName))
	return a + b, err
}

func hostPrefix(host string) []byte { return append(append([]byte{rowMint}, host...), 0) }

func formerPrefix(host, agent string) []byte {
	b := append(append([]byte{rowFormer}, host...), 0)
	return append(append(b, agent...), 0)
}

func (m *Mint) key() []byte {
	b := hostPrefix(m.Host)
	b = append(append(b, m.Agent...), 0)
	b = append(append(b, m.Project...), 0)
	var flags byte
	if m.Flat {
		flags |= flagFlat
	}
	if m.Chosen {
		flags |= flagChosen
	}
	b = append(b, flags)
	b = append(append(b, m.Repo.Root...), 0)
	return append(append(b, m.Repo.Remote...), 0)
}

// Known is a minted name as the view has it.
type Known struct {
	Mint
	First, Last oplog.Ref // of the entries that minted it
}

func parse(k, v []byte) (n Known, err error) {
	bad := fmt.Errorf("minted: row %q: %w", k, errRow)
	if len(k) == 0 || len(v) != 2*oplog.RefSize {
		return n, bad
	}
	rest := k[1:]
	text := func() string {
		part, after, ok := bytes.Cut(rest, []byte{0})
		if !ok {
			err = bad
		}
		rest = after
		return string(part)
	}
	n.Host, n.Agent, n.Project = text(), text(), text()
	if len(rest) == 0 {
		return n, bad
	}
	n.Flat, n.Chosen = rest[0]&flagFlat != 0, rest[0]&flagChosen != 0
	rest = rest[1:]
	n.Repo.Root, n.Repo.Remote = text(), text()
	n.First, n.Last = oplog.Ref(v[:oplog.RefSize]), oplog.Ref(v[oplog.RefSize:])
	return n, err
}

// List gives the names minted on a host, or on every host when it is empty.
func List(views oplog.Views, host string) (list []Known, err error) {
	prefix := []byte{rowMint}
	if host != "" {
		prefix = hostPrefix(host)
	}
	err = views.View(ViewName).Scan(prefix, nil, false, func(k, v []byte) (bool, error) {
		n, err := parse(k, v)
		list = append(list, n)
		return err == nil, err
	})
	return list, err
}

// Former gives the names that an agent's instructions once held besides the
// minted ones, as told when its name was minted.
func Former(views oplog.Views, host, agent string) (list []string, err error) {
	prefix := formerPrefix(host, agent)
	err = views.View(ViewName).Scan(prefix, nil, false, func(k, _ []byte) (bool, error) {
		list = append(list, string(k[len(prefix):]))
		return true, nil
	})
	return list, err
}

// Speakers folds who has written anything, and from which origin.
//
//	a author 0 origin16   nothing
//	n                     how many
type Speakers struct{}

const rowSpeaker = 'a'

// Name is "speaker".
func (Speakers) Name() string { return SpeakersName }

// Version of the rows.
func (Speakers) Version() uint32 { return 1 }

// Kinds are all.
func (Speakers) Kinds() []string { return []string{"*"} }

// Apply notes an author's first entry of an origin.
func (Speakers) Apply(tx oplog.Tx, e *oplog.Entry) error {
	if e.Author == "" || bytes.IndexByte([]byte(e.Author), 0) >= 0 {
		return nil
	}
	k := append(speakerPrefix(e.Author), e.Origin[:]...)
	_, err := tx.Get(k)
	if !errors.Is(err, oplog.ErrNotFound) {
		return err
	}
	if err := tx.Insert(k, nil); err != nil {
		return err
	}
	return count(tx)
}

func speakerPrefix(author string) []byte { return append(append([]byte{rowSpeaker}, author...), 0) }

// SpokenFrom gives the origins from which an identity has written.
func SpokenFrom(views oplog.Views, name string) (list []oplog.OriginID, err error) {
	prefix := speakerPrefix(name)
	err = views.View(SpeakersName).Scan(prefix, nil, false, func(k, _ []byte) (bool, error) {
		var o oplog.OriginID
		if len(k) != len(prefix)+len(o) {
			return false, errRow
		}
		copy(o[:], k[len(prefix):])
		list = append(list, o)
		return true, nil
	})
	return list, err
}

// spokenTuple reports whether an agent of a host has written under any tuple.
func spokenTuple(views oplog.Views, host, agent string) (found bool, err error) {
	prefix := append([]byte{rowSpeaker}, host+":"+agent+":"...)
	err = views.View(SpeakersName).Scan(prefix, nil, false, func(_, _ []byte) (bool, error) {
		found = true
		return false, nil
	})
	return found, err
}
