package minted

import (
	"bytes"

	"tallystick/oplog"
	"tallystick/query/internal/near"
)

// Spoke reports whether an entry of that author has arrived here.
func Spoke(views oplog.Views, name string) (found bool, err error) {
	err = views.View(SpeakersName).Scan(speakerPrefix(name), nil, false, func(_, _ []byte) (bool, error) {
		found = true
		return false, nil
	})
	return found, err
}

// SpeakerNames gives who has written anything, in the order of the names, at
// most limit of them, and whether there are more.
func SpeakerNames(views oplog.Views, limit int) (names []string, more bool, err error) {
	err = views.View(SpeakersName).Scan([]byte{rowSpeaker}, nil, false, func(k, _ []byte) (bool, error) {
		name, _, ok := bytes.Cut(k[1:], []byte{0})
		switch {
		case !ok:
			return false, errRow
		case len(names) > 0 && names[len(names)-1] == string(name):
			return true, nil // from another origin
		case len(names) == limit:
			more = true
			return false, nil
		}
		names = append(names, string(name))
		return true, nil
	})
	return names, more, err
}

// SpokenAt gives the names with a host, tuples and flat ones, under which some
// of the wanted origins have written, in the order of the names.
func SpokenAt(views oplog.Views, host string, of func(oplog.OriginID) bool) (names []string, err error) {
	for _, prefix := range []string{host + "-", host + ":"} {
		err = views.View(SpeakersName).Scan(append([]byte{rowSpeaker}, prefix...), nil, false, func(k, _ []byte) (bool, error) {
			name, origin, ok := bytes.Cut(k[1:], []byte{0})
			if !ok || len(origin) != len(oplog.OriginID{}) {
				return false, errRow
			}
			if n := len(names); (n == 0 || names[n-1] != string(name)) && of(oplog.OriginID(origin)) {
				names = append(names, string(name))
			}
			return true, nil
		})
		if err != nil {
			return nil, err
		}
	}
	return names, nil
}

// SpeakersNear gives names of those who have written that look like another.
func SpeakersNear(views oplog.Views, name string) ([]string, error) {
	names, _, err := SpeakerNames(views, near.MaxCandidates)
	if err != nil {
		return nil, err
	}
	return near.Names(name, names), nil
}
