package replica

import (
	"errors"
	"fmt"
	"io/fs"
)

const meshMagic = "tallymsh"

// meshState is the file "mesh" of the data directory: which mesh the store
// belongs to, and the proof of the own admission. It lies beside the store
// because it must be known before the store can be opened.
type meshState struct {
	Mesh  []byte
	Label string
	Proof []byte
}

func (s *meshState) id() (m MeshID) { copy(m[:], s.Mesh); return m }

// loadMesh returns fs.ErrNotExist when there is none, and an error that wraps
// errFileDamaged for one that cannot be read.
func loadMesh(cfg *Config) (*meshState, error) {
	b, err := readSmall(cfg.meshFile())
	if err != nil {
		return nil, err
	}
	body, err := decodeFile(meshMagic, b)
	if err != nil {
		return nil, err
	}
	return parseMesh(body)
}

func parseMesh(body []byte) (*meshState, error) {
	s := new(meshState)
	if err := unmarshalArrays(body, s); err != nil {
		return nil, fmt.Errorf("%w: its body does not parse", errFileDamaged)
	}
	if len(s.Mesh) != len(MeshID{}) || CheckLabel(s.Label) != nil || len(s.Proof) > maxProofBytes {
		return nil, fmt.Errorf("%w: its fields are malformed", errFileDamaged)
	}
	return s, nil
}

func saveMesh(cfg *Config, s *meshState) error {
	body, err := marshalArrays(s)
	if err != nil {
		return err
	}
	return writeFile(cfg.meshFile(), encodeFile(meshMagic, body), false)
}

func meshMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errFileDamaged)
}
