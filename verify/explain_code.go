package verify

// explainCode is for schemes that a recipe cannot say: what they sign is known to
// their code alone, so other keys and other spellings of the URL are tried on it
// whole.
func (x *explainer) explainCode(right Envelope) {
	e := x.out.Error
	if e == nil {
		x.out.Timestamp, x.out.Distance, x.out.DeliveryID = right.Timestamp, right.Distance, right.DeliveryID
		return
	}
	x.out.Timestamp, x.out.Distance, x.out.DeliveryID = x.shortened(e.Timestamp), e.Distance, e.DeliveryID
	switch e.Reason {
	case ReasonTimestampMalformed:
		x.add("ts_format", "send the timestamp as the scheme says", "the timestamp %s", unitText["ts_format"])
		return
	case ReasonTimestampOutOfWindow:
		if e.Field == "claim:exp" || e.Field == "sig:expires" {
			x.add("ts_window", "sign each attempt afresh; set both clocks (NTP)", "the signature says itself until when it holds (%s), and that is over", e.Field)
		} else {
			x.addWindow(e.Distance, 0)
		}
	case ReasonClaimMismatch: // a claim may be the URL
	case ReasonSignatureMismatch, ReasonKeyUnknown, ReasonKeyExpired, ReasonKeyNotYetValid:
	default:
		return // the reason says it
	}
	x.urls = spellings(x.publicURL())
	for n := 0; n <= 2; n++ {
		for i := range x.keys {
			for u := range others(len(x.urls)) {
				k := &x.keys[i]
				if k.faults+min(u, 1) != n {
					continue
				}
				if !x.spend(int64(len(x.c.r.Body)) + costPublic) {
					x.addSearchCut()
					return
				}
				if x.tryCode(k, x.urls[u]) {
					x.codeHit(k, u)
					return
				}
			}
		}
	}
	if e.Reason != ReasonTimestampOutOfWindow && e.Reason != ReasonClaimMismatch {
		x.addNoMatch()
	}
}

// tryCode verifies with one key, whatever its span and the clock.
func (x *explainer) tryCode(k *tryKey, url string) bool {
	keys, err := NewKeySet(Key{Secret: k.key.Secret})
	if err != nil {
		return false
	}
	v := *x.c.v
	v.Keys, v.URL, v.Tolerance = keys, url, 1<<62
	_, err = v.Verify(x.c.r)
	return err == nil
}

func (x *explainer) codeHit(k *tryKey, u int) {
	x.out.MatchedKey = k.key.ID
	list := append([]departure(nil), k.list...)
	if u > 0 {
		list = append(list, urlDeparture(x.urls[0], x.urls[u]))
	}
	x.proven(list, keyPhrase(k.key))
	x.otherKey(k)
}
