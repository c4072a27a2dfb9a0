package devdb

import (
	"os"
	"testing"
	"time"
)

func TestStart(t *testing.T) {
	b := time.Now()
	s, err := Start(t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(time.Since(b), s.URL("postgres"), s.Binaries())
	b = time.Now()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Log(time.Since(b))
	if _, err := os.Stat(s.dir); err == nil {
		t.Fatal("left")
	}
}
