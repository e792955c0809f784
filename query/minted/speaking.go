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

// SpeakersNear gives names of those who have written that look like another.
func SpeakersNear(views oplog.Views, name string) ([]string, error) {
	names, _, err := SpeakerNames(views, near.MaxCandidates)
	if err != nil {
		return nil, err
	}
	return near.Names(name, names), nil
}
