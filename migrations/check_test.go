package migrations_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
	"github.com/hooklatch/hooklatch/migrations"
)

func TestCheck(t *testing.T) {
	url := inboxtest.URL(t)
	conn := connect(t, url)
	need := newest(t)
	later := fmt.Sprintf(`INSERT INTO hooklatch.schema_version (version_id, is_applied) VALUES (%d, true), (%d, true)`, need+1, need+2)
	serves := func(n int64) string {
		return fmt.Sprintf(`COMMENT ON TABLE hooklatch.schema_version IS 'serves %d'`, n)
	}
	for _, step := range []struct {
		name string
		sql  string
		want *migrations.VersionError
	}{
		{"same version", ``, nil},
		{"older", fmt.Sprintf(`COMMENT ON TABLE hooklatch.schema_version IS NULL; DELETE FROM hooklatch.schema_version WHERE version_id = %d`, need),
			&migrations.VersionError{Schema: need - 1, Serves: need - 1, Binary: need}},
		{"newer, says nothing", `COMMENT ON TABLE hooklatch.schema_version IS NULL;` + fmt.Sprintf(`INSERT INTO hooklatch.schema_version (version_id, is_applied) VALUES (%d, true);`, need) + later,
			&migrations.VersionError{Schema: need + 2, Serves: need + 2, Binary: need}},
		{"newer, serves us", serves(need), nil},
		{"newer, serves older ones too", serves(need - 1), nil},
		{"newer, serves us no more", serves(need + 1), &migrations.VersionError{Schema: need + 2, Serves: need + 1, Binary: need}},
		{"comment of a person", `COMMENT ON TABLE hooklatch.schema_version IS 'do not touch'`,
			&migrations.VersionError{Schema: need + 2, Serves: need + 2, Binary: need}},
		{"no rows", `DELETE FROM hooklatch.schema_version`, &migrations.VersionError{Binary: need}},
		{"no table", `DROP TABLE hooklatch.schema_version`, &migrations.VersionError{Binary: need}},
		{"no schema", `DROP SCHEMA hooklatch CASCADE`, &migrations.VersionError{Binary: need}},
	} {
		if _, err := conn.Exec(t.Context(), step.sql); err != nil {
			t.Fatal(err)
		}
		err := migrations.Check(t.Context(), conn)
		var got *migrations.VersionError
		if errors.As(err, &got) {
			err = nil
		}
		if err != nil || (got == nil) != (step.want == nil) || got != nil && *got != *step.want {
			t.Errorf("%s: %v %+v, want %+v", step.name, err, got, step.want)
		}
	}
	conn.Close(t.Context())
	if err := migrations.Check(t.Context(), conn); err == nil {
		t.Error("a check without a database says yes")
	}
}

func TestVersionErrorNamesBoth(t *testing.T) {
	for want, err := range map[string]error{
		"schema is version 1, this binary needs version 2: run hooklatch migrate up":                                      &migrations.VersionError{Schema: 1, Serves: 1, Binary: 2},
		"schema is version 7 and serves binaries of version 6 and newer, this one is of version 5: run a newer hooklatch": &migrations.VersionError{Schema: 7, Serves: 6, Binary: 5},
	} {
		if err.Error() != want {
			t.Error(err)
		}
		var version *migrations.VersionError
		if !errors.As(fmt.Errorf("x: %w", err), &version) {
			t.Error("no VersionError")
		}
	}
}
