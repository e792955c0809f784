package replica

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"io"
	"math/big"
	"time"

	"tallystick/oplog"
)

// proofOID marks the certificate extension that carries the proof of the own
// admission, so that a member who has not heard of it yet can check it. The
// second arc is free for anyone; the number spells "tall".
var proofOID = asn1.ObjectIdentifier{2, 25, 1952541804}

// newCertificate makes the self-signed certificate of a device. Peers look at
// its key and its proof only: no name, no date, no issuer counts.
func newCertificate(key ed25519.PrivateKey, label string, proof []byte, random io.Reader) (*tls.Certificate, error) {
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: label},
		NotBefore:    time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
	if len(proof) > 0 {
		tmpl.ExtraExtensions = []pkix.Extension{{Id: proofOID, Value: proof}}
	}
	der, err := x509.CreateCertificate(random, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("replica: make certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// peerKey is the device key a connection's peer proved to own.
func peerKey(cs *tls.ConnectionState) (k oplog.DeviceKey, err error) {
	if len(cs.PeerCertificates) != 1 {
		return k, fmt.Errorf("%d certificates, want 1", len(cs.PeerCertificates))
	}
	pub, ok := cs.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	if !ok || len(pub) != len(k) {
		return k, errors.New("the certificate's key is not ed25519")
	}
	copy(k[:], pub)
	return k, nil
}

func peerProof(cs *tls.ConnectionState) []byte {
	for _, ext := range cs.PeerCertificates[0].Extensions {
		if ext.Id.Equal(proofOID) {
			return ext.Value
		}
	}
	return nil
}
