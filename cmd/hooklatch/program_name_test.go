package main

import (
	"strings"
	"testing"
	"time"
)

// Next steps once named a program that is not on PATH where this one was built in
// a folder. Without a PATH this is called as the test binary is.
func TestNextStepsCallTheProgramAsItWasCalled(t *testing.T) {
	t.Setenv("PATH", "")
	me := programName()
	if me == "hooklatch" {
		t.Fatal("void: it cannot be told from the name that was fixed")
	}
	d := deliveryLine{DeliveryID: "dlv_1", BodyHash: strings.Repeat("0", 64)}
	var show, trace strings.Builder
	if err := (shownDelivery{deliveryLine: d}).print(&show, false); err != nil {
		t.Fatal(err)
	}
	if err := (traced{Delivery: d}).print(&trace, false, time.Now()); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		show.String():                  me + " trace dlv_1   |   " + me + " events body dlv_1 --pretty",
		trace.String():                 me + " events show dlv_1   |   " + me + " events body dlv_1 --pretty",
		(listOptions{}).next("cursor"): me + " events list --limit 0 --after cursor",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("got %s\nwant %s", text, want)
		}
	}
}
