// The filter of the turns, which all figures of the page follow, and the choice of what they are compared with.

import { useRef } from 'preact/hooks';
import { type Choices, type Filter, SHOWS, type Show, everything, isFiltered } from '../data/query';
import { KIND_WORDS, SHOW_WORDS } from '../data/words';

interface Props {
  filter: Filter;
  choices: Choices;
  /** Turns shown, of all. */
  shown: number;
  all: number;
  onFilter: (filter: Filter) => void;
}

export function Filters({ filter, choices, shown, all, onFilter }: Props) {
  const set = (change: Partial<Filter>) => onFilter({ ...filter, ...change });
  const count = isFiltered(filter) ? `${shown} of ${all} turns` : `${all} turns`;
  // What a choice leaves is announced, until a turn comes; the turn is not.
  const chosen = useRef({ filter, count: '' });
  if (chosen.current.filter !== filter) chosen.current = { filter, count };
  const announced = chosen.current.count === count ? count : '';
  return (
    <search class="card area-filter filters" id="filters" aria-label="Filter of the turns">
      <label class="field filter-words">
        <span>Search</span>
        <input id="words" type="search" placeholder="words, or an id" value={filter.words} onInput={(event) => set({ words: event.currentTarget.value })} />
      </label>
      <label class="field">
        <span>Show</span>
        <select id="show" value={filter.show} onChange={(event) => set({ show: event.currentTarget.value as Show })}>
          {SHOWS.map((show) => (
            <option key={show} value={show}>
              {SHOW_WORDS[show]}
            </option>
          ))}
        </select>
      </label>
      <Choice id="kind" name="Kind" value={filter.kind} entries={choices.kinds} words={(kind) => KIND_WORDS[kind] ?? kind} onValue={(kind) => set({ kind })} />
      <Choice id="engine" name="Engine" value={filter.engine} entries={choices.engines} onValue={(engine) => set({ engine })} />
      <Choice id="session" name="Session" value={filter.session} entries={choices.sessions} onValue={(session) => set({ session })} />
      <p class="visually-hidden" role="status">
        {announced}
      </p>
      <p class="filter-count quiet">
        {count}
        {isFiltered(filter) && (
          <button type="button" class="link" onClick={() => onFilter(everything)}>
            show all
          </button>
        )}
      </p>
    </search>
  );
}

interface ChoiceProps {
  id: string;
  name: string;
  value: string;
  entries: [string, number][];
  words?: (value: string) => string;
  onValue: (value: string) => void;
}

/** Omitted where there is nothing to choose. */
function Choice({ id, name, value, entries, words = (one) => one, onValue }: ChoiceProps) {
  const isKnown = entries.some(([one]) => one === value);
  if (entries.length < 2 && value === '') return null;
  return (
    <label class="field">
      <span>{name}</span>
      <select id={id} value={value} onChange={(event) => onValue(event.currentTarget.value)}>
        <option value="">Any</option>
        {/* An address may name one of which no turn is left. */}
        {value !== '' && !isKnown && <option value={value}>{words(value)}</option>}
        {entries.map(([one, n]) => (
          <option key={one} value={one}>
            {words(one)} ({n})
          </option>
        ))}
      </select>
    </label>
  );
}
