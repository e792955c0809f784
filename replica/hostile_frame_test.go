package replica_test

import (
	"bufio"
	"bytes"
	"errors"
	"testing"

	kit "tallystick/internal/hostile"
	"tallystick/replica"
)

// TestL5_HostileFrames: bodies of every kind of message under a checksum that
// fits, as a member who means it would send them. Many are messages, for a
// number takes any bytes; those that are come out as they went in.
func TestL5_HostileFrames(t *testing.T) {
	for _, s := range samples() {
		t.Run(s.name, func(t *testing.T) {
			good, err := replica.AppendFrame(nil, s.msg)
			if err != nil {
				t.Fatal(err)
			}
			cases := kit.Bytes(good[16:])
			for i := range cases {
				cases[i].In = reseal(append(bytes.Clone(good[:16]), cases[i].In...))
			}
			const any = "what is taken is written back the same"
			kit.Check(t, cases, map[kit.Kind]string{kit.Cut: any, kit.Behind: any}, func(frame []byte) error {
				m, rest, err := replica.ParseFrame(frame)
				if err != nil {
					if !errors.Is(err, replica.ErrFrame) {
						t.Errorf("error of another class: %v", err)
					}
					return err
				}
				if again, err := replica.AppendFrame(nil, m); err != nil || !bytes.Equal(again, frame) || len(rest) > 0 {
					t.Errorf("%.100x\nis written back as\n%.100x, %v", frame, again, err)
				}
				return nil
			})
			kit.Check(t, cases, map[kit.Kind]string{kit.Cut: any, kit.Behind: any}, func(frame []byte) error {
				_, err := replica.ReadFrame(bufio.NewReaderSize(bytes.NewReader(frame), 16), nil)
				if err != nil && !errors.Is(err, replica.ErrFrame) {
					t.Errorf("error of another class: %v", err)
				}
				return err
			})
			// The frame itself: its checksum tells every turned bit.
			flips := kit.Flips(good)
			for i := range flips {
				flips[i].Kind = kit.Cut
			}
			next := bytes.Clone(good)
			next[4]++
			flips = append(append(flips, kit.Cuts(good)...), kit.Case{Kind: kit.Version, Name: "the next", In: next})
			kit.Check(t, flips, nil, func(frame []byte) error { _, _, err := replica.ParseFrame(frame); return err })
			kit.Check(t, flips, nil, func(frame []byte) error {
				_, err := replica.ReadFrame(bufio.NewReaderSize(bytes.NewReader(frame), 16), nil)
				return err
			})
		})
	}
}
